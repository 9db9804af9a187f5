"""Started as a script: shuts a process in, so that code nobody has read can run in it.

``python -I -S code_jail.py SPEC`` with SPEC a JSON object (see :func:`main`). The launcher stays
outside; the process that it makes is limited first and starts a fresh interpreter last. Only the
standard library of Linux is used, and this file imports nothing of the package.

Two ways, ``namespaces`` and ``filter``; both have the resource limits of :func:`limit`, an empty
environment, no privileges to gain, and on x86-64 the system-call filter:

- ``namespaces``: own users, processes, network (none), System V objects and mounts. The root is
  the interpreter's own files, read-only, and an empty ``/work`` of a few megabytes in memory.
- ``filter``: for kernels or containers without user namespaces. The filter also refuses every
  call that writes to a file, so that the files of the machine can be read but not changed.

A process started by root runs as a user id that nobody has, else as the same user.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import struct
import sys
import time

SETUP_FAILED = 97  # the exit status of the launcher, with the reason on its standard error
_FIRST_ID, _IDS = 0x50000000, 0x10000000  # user ids that no account has
_NEW = {"mount": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000}
_NEW |= {"process": 0x20000000, "network": 0x40000000}
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 4096, 16384, 1 << 18, 2
_NO_SUID, _NO_DEVICES = 2, 4
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000
_DEATH_SIGNAL, _DUMPABLE, _SECCOMP, _NO_NEW_PRIVILEGES = 1, 4, 22, 38

# Numbers of the x86-64 system calls. Refused always: sockets; memory that outlives the limits
# (System V objects, message queues); reaching other processes; mounts and namespaces; keys; the
# newer ways around a filter.
_REFUSED = {
    *(41, 42, 53, 29, 64, 68, 240, 62, 200, 234, 129, 297, 424, 434, 438, 101, 310, 311, 312),
    *(440, 448, 141, 142, 144, 203, 251, 256, 279, 314, 161, 155, 165, 166, 272, 308, 428, 429),
    *(430, 431, 432, 433, 442, 304, 248, 249, 250, 321, 298, 323, 425, 426, 427),
}
# Refused where the mounts do not protect files: all that makes, changes or removes one.
_WRITING = {
    *(76, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 132, 133, 188, 189, 190, 197, 198, 199),
    *(235, 258, 259, 260, 261, 263, 264, 265, 266, 268, 280, 316, 452, 77, 285),
}
_OPEN, _OPENAT, _OPENAT2, _FCNTL, _PRLIMIT = 2, 257, 437, 72, 302
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

libc = ctypes.CDLL(None, use_errno=True)


def main(spec: dict) -> int:
    """Run ``spec["code"]`` shut in; the exit status of the launcher: 0, or ``SETUP_FAILED``.

    Other keys: ``way``; ``fds``, the descriptors that it gets as 3, 4, ...; ``wall``, ``cpu``
    (seconds), ``memory``, ``file`` (bytes); ``python``, ``prefix``, the interpreter; ``root``, an
    empty folder to mount on. All ends with the wall clock, or a SIGTERM to the launcher.
    """
    watched: set[int] = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    _prctl(_DEATH_SIGNAL, signal.SIGTERM)
    try:
        if spec["way"] == "namespaces":
            _new_namespaces()
    except OSError as error:
        print(f"namespaces: {error}", file=sys.stderr)
        return SETUP_FAILED
    faults, told = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _inside(spec, told, watched)
    os.close(told)
    deadline = time.monotonic() + spec["wall"]
    try:
        while (left := deadline - time.monotonic()) > 0:
            caught = signal.sigtimedwait(watched, left)
            if caught is None or caught.si_signo == signal.SIGTERM:
                break
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
    finally:
        os.kill(child, signal.SIGKILL)  # with a process namespace, all in it go too
        os.waitpid(child, 0)
    reason = os.read(faults, 2000).decode(errors="replace")
    if reason:
        print(reason, file=sys.stderr)
        return SETUP_FAILED
    return 0


def _inside(spec: dict, told: int, watched: set[int]) -> None:
    """What the new process does before it becomes the interpreter. Never returns."""
    try:
        os.umask(0o022)
        told = _arrange(spec["fds"], told)
        if spec["way"] == "namespaces":
            _new_root(spec)
        else:
            os.chdir("/")
        become_nobody()
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        _prctl(_NO_NEW_PRIVILEGES, 1)
        limit(spec)
        if platform.machine() == "x86_64":
            install_filter(files_too=spec["way"] != "namespaces")
        elif spec["way"] != "namespaces":
            raise OSError(errno.ENOSYS, f"no filter is known for {platform.machine()}")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        os.set_inheritable(told, False)
        os.execve(
            spec["python"], [spec["python"], "-I", "-S", "-X", "utf8", "-c", spec["code"]], {}
        )
    except BaseException as error:  # told to the parent, which cannot see an exception of ours
        os.write(told, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(SETUP_FAILED)


def _arrange(given: list[int], told: int) -> int:
    """Put the descriptors at 3, 4, ...; 0 to 2 lead nowhere; the rest are closed.

    Returns where ``told`` went: the one after the last.
    """
    away = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (*given, told)]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nowhere, place)
    places = range(3, 3 + len(away))
    for place, fd in zip(places, away, strict=True):
        os.dup2(fd, place)
    os.closerange(places[-1] + 1, 1 << 16)
    return places[-1]


def _new_namespaces() -> None:
    """Leave the machine's; as an ordinary user, in a user namespace where one is still that."""
    flags = sum(_NEW[name] for name in ("mount", "uts", "ipc", "process", "network"))
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _checked(libc.unshare(flags), "unshare")
        return
    _checked(libc.unshare(flags | _NEW["user"]), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _new_root(spec: dict) -> None:
    """Mount the interpreter's files read-only on a new root, and forget the old one."""
    new = spec["root"]
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", new, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,nr_inodes=4096,mode=755")
    for source in dict.fromkeys(("/usr", "/lib", "/lib64", spec["prefix"])):
        place = new + source
        if os.path.islink(source):
            os.symlink(os.readlink(source), place)
        elif os.path.isdir(source) and not os.path.isdir(place):
            os.makedirs(place, exist_ok=True)
            _mount(source, place, None, _BIND | _RECURSIVE)
            _read_only(place, recursive=True)
    os.mkdir(new + "/work")
    _mount(
        "tmpfs", new + "/work", "tmpfs", _NO_SUID | _NO_DEVICES, "size=4m,nr_inodes=256,mode=777"
    )
    _read_only(new, recursive=False)
    os.chdir(new)
    _checked(libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _checked(libc.umount2(b".", _DETACH), "umount")
    os.chdir("/work")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = libc.mount(
        source.encode(),
        target.encode(),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _checked(done, f"mount on {target}")


def _read_only(place: str, recursive: bool) -> None:
    """No writing, no set-user-id, no devices: for all mounts below, which a remount cannot."""
    wanted = ctypes.create_string_buffer(struct.pack("QQQQ", 1 | _NO_SUID | _NO_DEVICES, 0, 0, 0))
    done = libc.syscall(
        _MOUNT_SETATTR, -100, place.encode(), _AT_RECURSIVE if recursive else 0, wanted, 32
    )
    _checked(done, f"read-only mount of {place}")


def become_nobody() -> None:
    """From root to a user id that no account has: root is exempt from the process limit."""
    if os.geteuid() == 0:
        chosen = _FIRST_ID + int.from_bytes(os.urandom(4)) % _IDS
        os.setgroups([])
        os.setresgid(chosen, chosen, chosen)
        os.setresuid(chosen, chosen, chosen)
    if 0 in os.getresuid():
        raise OSError(errno.EPERM, "still root")


def limit(spec: dict) -> None:
    """Limits that the process cannot raise. One process: it can start none, and no thread."""
    for name, value in (
        ("CPU", spec["cpu"]),
        ("AS", spec["memory"]),
        ("FSIZE", spec["file"]),
        ("NOFILE", 32),
        ("NPROC", 1),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def install_filter(files_too: bool) -> None:
    """Refuse system calls by number (EPERM), for this process and what it becomes.

    As classic BPF: four fields a step, code, jump if true, jump if false, value.
    """
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, refuse, unknown, allow = (
        0x80000000,
        0x50000 | errno.EPERM,
        0x50000 | errno.ENOSYS,
        0x7FFF0000,
    )
    steps = [(load, 0, 0, 4), (equal, 1, 0, 0xC000003E), (give, 0, 0, kill)]
    steps += [(load, 0, 0, 0), (at_least, 0, 1, 0x40000000), (give, 0, 0, kill)]
    for number in sorted(_REFUSED | (_WRITING if files_too else set())):
        steps += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    steps += [(equal, 0, 1, _OPENAT2), (give, 0, 0, unknown)]
    checks = [(_PRLIMIT, 0, any_bit, 0xFFFFFFFF)]  # limits of another process
    checks += [(_FCNTL, 1, equal, command) for command in (8, 10, 15)]  # signals by descriptor
    if files_too:
        checks += [(_OPEN, 1, any_bit, _WRITE_FLAGS), (_OPENAT, 2, any_bit, _WRITE_FLAGS)]
    for number, argument, test, value in checks:
        steps += [(equal, 0, 4, number), (load, 0, 0, 16 + 8 * argument), (test, 0, 1, value)]
        steps += [(give, 0, 0, refuse), (load, 0, 0, 0)]
    steps.append((give, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    )
    _prctl(_SECCOMP, 2, ctypes.addressof(head))


def _prctl(option: int, value: int, address: int = 0) -> None:
    done = libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(address), 0, 0)
    _checked(done, f"prctl {option}")


def _checked(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
