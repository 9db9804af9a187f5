"""Rules for members that a vLLM server on this machine answers for (``serve: vllm``)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.schema import Config


def check_vllm(config: Config, here: bool = True) -> Iterator[Fault]:
    """Which members may be served so, and whether there is a server to start or to use."""
    served = []
    for position, member in enumerate(config.pool.members):
        if member.serve != "vllm" or member.engine == "openai":
            continue  # members behind endpoints have a rule of their own
        path = ("pool", "members", position, "serve")
        base = member.model or config.pool.base or ""
        if member.engine != "hf":
            text = f"is about weights here, and {member.name} is {member.engine}; remove it"
            yield Fault(path, text)
        elif base.endswith(".gguf"):
            text = f"vLLM does not serve {base!r} with adapters; name a folder, or use serve: here"
            yield Fault(path, text)
        else:
            served.append(base)
    bases = sorted(set(served))
    if config.vllm.url and len(bases) > 1:
        yield Fault(
            ("vllm", "url"),
            f"is one server, but {len(bases)} bases are to be served ({', '.join(bases)}); leave "
            "url out, so that a server is started for each, or give the members one base",
        )
    if here and served and not config.vllm.url:
        yield from _command(config.vllm.command)


def _command(command: list[str]) -> Iterator[Fault]:
    path = ("vllm", "command")
    if not command:
        yield Fault(path, "is empty; name vLLM's program, such as [vllm]")
    elif shutil.which(command[0]) is None:
        yield Fault(
            path,
            f"there is no program {command[0]!r}; install vLLM in an environment of its own and "
            "name its program here ([/opt/vllm/bin/vllm]), or set vllm.url to a running server",
        )
