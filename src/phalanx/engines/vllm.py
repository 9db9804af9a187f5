"""Members behind vLLM servers that this run starts, feeds with adapters and puts to rest.

One server for each base. Requests are token ids made here (:mod:`phalanx.engines.vllm_asking`), so
a member answers, judges and trains on the same prompts as on the hf engine. Each version of a
member's adapter has a name of its own: neither weights nor cached prompts of an old one linger.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.config.schema import VllmSettings
from phalanx.engines import vllm_server, vllm_stream
from phalanx.engines.vllm_check import check_base
from phalanx.engines.vllm_names import BaseKey, served_name
from phalanx.engines.vllm_server import ServedBase, Server
from phalanx.engines.vllm_work import ServedWork
from phalanx.identity import content_id
from phalanx.types import Member, Request, Response
from phalanx.weights import Weights, resolve_adapter, resolve_model


@dataclass(frozen=True, slots=True)
class ServedPool:
    """What the servers have to hold: the members, and the rank of adapters yet to be trained.

    ``rank`` is 0 where nobody trains.
    """

    members: tuple[Member, ...]
    rank: int = 0

    def base(self, key: BaseKey) -> ServedBase:
        """What the server of that base is started with."""
        members = [member for member in self.members if member.base_key == key]
        ranks = []
        for member in members:
            if member.adapter is not None:
                ranks.append(_rank(resolve_adapter(member.adapter, member.name)))
            elif self.rank and "learn" in member.roles:
                ranks.append(self.rank)
        source, dtype, trust = key
        return ServedBase(
            source=str(resolve_model(source)),
            dtype=dtype,
            trust_remote_code=trust,
            num_adapters=len(ranks),
            rank=max(ranks, default=1),
        )


def _rank(folder: Path) -> int:
    """The largest rank in an adapter, single layers' own included."""
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return max([settings["r"], *(settings.get("rank_pattern") or {}).values()])


@dataclass
class VllmEngine:
    """Implements :class:`phalanx.types.ConcurrentEngine` for members served by vLLM; streams, too.

    ``folder``, below the run's, gets one log for each server (default: a new temporary folder);
    adapters that a server has from the run's folder are ours to unload. ``keep_all`` holds
    the servers of all bases at once; otherwise one is stopped before the next starts.
    """

    settings: VllmSettings
    pool: ServedPool
    folder: Path | None = None
    keep_all: bool = False
    texts: Weights = field(default_factory=lambda: Weights(device="cpu"))
    """Tokenizers and chat formats alone: no weights are loaded through it."""

    def __post_init__(self) -> None:
        self._servers: dict[BaseKey, Server] = {}
        self._ours: dict[BaseKey, dict[str, None]] = {}
        self._checked: set[BaseKey] = set()
        self._work: ServedWork | None = None
        self._lock = threading.RLock()  # texts may be streamed by several threads

    def plan(self, requests: Sequence[Request]) -> list[list[int]]:
        """Each request is a batch: the server makes its own. Members of one base stay together."""
        groups: dict[BaseKey, dict[Member, list[int]]] = {}
        for position, request in enumerate(requests):
            of_base = groups.setdefault(request.member.base_key, {})
            of_base.setdefault(request.member, []).append(position)
        return [
            [position]
            for members in groups.values()
            for positions in members.values()
            for position in positions
        ]

    def start(self, batches: Sequence[Sequence[Request]]) -> ServedWork:
        """Begin on all of them, base by base; the one whose server is up comes first."""
        self._join()
        self._work = ServedWork(self, batches)
        return self._work

    def respond(self, requests: Sequence[Request]) -> list[Response]:
        """All of them at once; returns when the last one is answered."""
        work = self.start([[request] for request in requests])
        found: dict[int, Response] = {}
        while work.num_open:
            found |= {number: replies[0] for number, replies in work.wait(0.2)}
        return [found[number] for number in range(len(requests))]

    def stream(self, request: Request, show: Callable[[str], None]) -> Response:
        """Answer one Sampling request; ``show`` gets the text as it comes."""
        self._join()
        return vllm_stream.stream(self, request, show)

    def facts(self) -> dict[str, str]:
        return {}

    def restore(self, facts: Mapping[str, str]) -> None:
        """There is nothing to take up: a server is started anew with each run."""

    def close(self) -> None:
        """Give up what is under way and stop the servers that were started here.

        A server of somebody else is left awake where :meth:`rest` put it to sleep. Raises
        EngineError where it does not wake.
        """
        if self._work is not None:
            self._work.give_up()
        self._join()
        servers = list(self._servers.values())
        left_asleep = [s for s in servers if s.process is None and s.was_put_to_sleep]
        for server in servers:
            server.stop()
        self._servers.clear()
        for server in left_asleep:
            server.wake()

    def rest(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Free the device for training: sleep, or stop where a server cannot; ``keep`` does not.

        The server at ``vllm.url`` holds its memory even where nothing was asked of it yet.
        """
        self._join()
        if self.settings.between_phases == "keep":
            return
        if self.settings.url and self.settings.between_phases == "sleep" and not self._servers:
            self._connect(self.pool.members[0].base_key)
        for key, server in list(self._servers.items()):
            if server.asleep:
                continue
            server.check_alive()
            if self.settings.between_phases == "sleep":
                if server.sleep():
                    continue
                if server.process is None:
                    say(f"Note: the vLLM server at {server.url} cannot sleep; it keeps its memory")
                    continue
                say("Note: this vLLM server cannot sleep; it is stopped while members train")
            if server.process is not None:
                server.stop()
                del self._servers[key]

    # What the work calls, in its own thread.

    def is_up(self, key: BaseKey) -> bool:
        return key in self._servers

    def ready(self, key: BaseKey, should_stop: Callable[[], bool]) -> Server:
        """The server of a base: running, awake. Raises EngineError where it cannot be."""
        with self._lock:
            server = self._servers.get(key)
            if server is None:
                server = self._connect(key) if self.settings.url else self._start(key, should_stop)
            server.check_alive()
            if server.asleep:
                server.wake()
            if server.process is None and key not in self._checked:
                member = next(member for member in self.pool.members if member.base_key == key)
                check_base(server, member, self.texts)
                self._checked.add(key)
            return server

    def _start(self, key: BaseKey, should_stop: Callable[[], bool]) -> Server:
        if not self.keep_all:
            self._stop_others()
        base = self.pool.base(key)
        server = vllm_server.start(base, self.settings, self._log(key), should_stop)
        self._servers[key], self._ours[key] = server, {}
        return server

    def _connect(self, key: BaseKey) -> Server:
        """Adapters of this run that an earlier start of it has left there are ours."""
        server = vllm_server.connect(self.settings)
        self._servers[key], self._ours[key] = server, {}
        if self.folder is not None:
            run = self.folder.resolve().parent
            left = [name for name, root in server.loaded.items() if run in Path(root).parents]
            self._ours[key] = dict.fromkeys(left)
        return server

    def names(self, key: BaseKey, members: Sequence[Member]) -> dict[Member, str]:
        """The name that the server knows each member by; adapters are loaded where they are not.

        Other versions of these members, and what was used longest ago where there is no room,
        are unloaded first.
        """
        with self._lock:
            return self._names(key, members)

    def _names(self, key: BaseKey, members: Sequence[Member]) -> dict[Member, str]:
        server, ours = self._servers[key], self._ours[key]
        found = {member: served_name(member) or server.base_name for member in members}
        wanted = {name: m for m, name in found.items() if m.adapter is not None}
        room = self._room(key, server)
        heads = {name.partition("@")[0] for name in wanted}
        for name in [name for name in ours if name not in wanted]:
            crowded = len(wanted.keys() | server.loaded.keys()) > room
            if name.partition("@")[0] in heads or crowded:
                server.unload_adapter(name)
                del ours[name]
        for name, member in wanted.items():
            ours.pop(name, None)
            if name not in server.loaded:
                folder = resolve_adapter(member.adapter or "", member.name)
                server.load_adapter(name, str(Path(folder).resolve()))
            ours[name] = None  # the last ones used are at the end
        return found

    def look_again(self, key: BaseKey) -> None:
        """Learn which adapters the server has: somebody may have started it anew."""
        server = self._servers[key]
        vllm_server.look(server)
        ours = self._ours.get(key, {})
        self._ours[key] = {name: None for name in ours if name in server.loaded}

    def context(self, key: BaseKey, member: Member) -> int:
        """Tokens that prompt and response may have together, to this server."""
        longest = self.texts.context_length(member)
        return min(longest, self._servers[key].context_length or longest)

    def _room(self, key: BaseKey, server: Server) -> int:
        """Adapters that may be loaded; a server of somebody else is taken to have room."""
        if server.process is None:
            return 1_000_000
        return max(self.pool.base(key).num_adapters, 1)

    def _stop_others(self) -> None:
        for key, server in list(self._servers.items()):
            server.stop()
            del self._servers[key]

    def _log(self, key: BaseKey) -> Path:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="phalanx-servers-"))
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(key[0]).name) or "base"
        return self.folder / f"{name}-{content_id(key, length=6)}.log"

    def _join(self) -> None:
        if self._work is not None:
            self._work.join()
            self._work = None
