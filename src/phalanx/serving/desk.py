"""A place where members and the collective are talked to, by several people at once.

It has one set of weights: a base is loaded once, and whoever's adapter is asked for is put on it.
What waits for the same member is written in one batch. Nothing is recorded: a conversation belongs
to whoever has it, and the ledger of a run holds what the run itself asked.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.asking import UNMADE
from phalanx.collective.mixture import answer_request
from phalanx.config import rules
from phalanx.config.base import sampling as sampling_of
from phalanx.config.faults import did_you_mean
from phalanx.config.schema import Config
from phalanx.engines.orders import (
    Hear,
    Order,
    Written,
    cut_at,
    never,
    request_of,
    response_from,
    written_from,
)
from phalanx.errors import ConfigError, EngineError, Interrupted
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.measuring.origins import Origin, made_members, origin_of
from phalanx.measuring.subjects import Subject
from phalanx.report.scores import Table, leading, macro
from phalanx.serving.asker import Asker
from phalanx.serving.collective import AUTO, COLLECTIVE, answer, collective_of, in_words
from phalanx.serving.counter import Counter
from phalanx.types import Failure, Member, Message, Request, Response, Sampling
from phalanx.workshop import Workshop

Show = Callable[[str], None]
Prompt = Sequence[Message] | str | Sequence[int]
HERE = frozenset({"hf", "reward"})
"""Engines that share this process's weights, which one thread alone may use."""


class Unknown(ConfigError):
    """Nobody has that name here."""


class Desk:
    """Members, and the collective, ready to be talked to from any thread. Use :func:`open_desk`.

    ``members`` are the names of single members, ``names`` those and ``collective`` where there is
    one. A run's members as they were are talked to as ``NAME@ITERATION``.
    """

    def __init__(
        self,
        origin: Origin,
        number: int,
        members: Sequence[Member],
        together: Subject | None,
        workshop: Workshop,
        counter: Counter,
    ) -> None:
        self.config = origin.config
        self.together = together
        self.closing = threading.Event()
        self._origin, self._number = origin, number
        self._members = {member.name: member for member in members}
        self._workshop = workshop
        self._counter = counter
        self._locks = {name: threading.Lock() for name in ("scripted", "vllm")}

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._members)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.members, *((COLLECTIVE,) if self.together is not None else ()))

    def about(self, name: str) -> str:
        """One line about whoever has the name. Raises Unknown."""
        if name == COLLECTIVE and self.together is not None:
            return in_words(self.together)
        member = self.member(name)
        adapter = f" + {Path(member.adapter).name}" if member.adapter else ""
        version = f", version {member.version}" if member.version else ""
        return f"{member.base}{adapter}{version}"

    def member(self, name: str) -> Member:
        """The member of this name, or of NAME@ITERATION of a run. Raises Unknown."""
        if name in self._members:
            return self._members[name]
        head, at, number = name.partition("@")
        versions = self._origin.versions
        if at and head in self._members and number.isdecimal() and int(number) in versions:
            for member in versions[int(number)]:
                if member.name == head:
                    return member
        close = did_you_mean(name, list(self.names), "models")
        if at and versions:
            there = f"{min(versions)} to {max(versions)}"
            close += f"; NAME@N is a member after iteration N, of {there}"
        raise Unknown(f"there is nobody called {name!r} here; {close}")

    def sampling(
        self, max_new_tokens: int | None = None, temperature: float | None = None
    ) -> Sampling:
        """How answers are written where nothing else is said: as in ``answer``."""
        given = {"max_new_tokens": max_new_tokens, "temperature": temperature}
        wanted = {name: value for name, value in given.items() if value is not None}
        return replace(sampling_of(self.config.answer), **wanted)

    def seed(self, given: int | None = None) -> int:
        """The seed that is given, else the configuration's."""
        return self.config.seed if given is None else given

    def say(
        self,
        name: str,
        messages: Sequence[Message],
        sampling: Sampling,
        seed: int,
        show: Show | None = None,
    ) -> Response:
        """The answer to a conversation that ends with a user turn; it may begin with a system
        message, which is joined to the member's own.

        ``show`` gets the text as it comes, in this thread, and what it raises is raised here: then
        the text is given up. A failure is a response with its error. Raises Unknown, and
        EngineError where an engine is broken.
        """
        hear = None if show is None else lambda piece, _: show(piece)
        return response_from(self.write(name, tuple(messages), sampling, seed, hear=hear), "")

    def write(
        self,
        name: str,
        prompt: Prompt,
        sampling: Sampling,
        seed: int,
        *,
        fits: bool = False,
        stop: Sequence[str] = (),
        num_top: int | None = None,
        echo: bool = False,
        hear: Hear | None = None,
        given_up: Callable[[], bool] = never,
    ) -> Written:
        """One text; see :class:`phalanx.engines.orders.Order` for what may be wanted of it.

        A prompt of messages gets the member's own system prompt; text and token ids are read as
        they are. ``hear`` is called in this thread.
        """

        def over() -> bool:
            return self.closing.is_set() or given_up()

        if name == COLLECTIVE and self.together is not None:
            return self._together(prompt, sampling, seed, stop, num_top, hear, over)
        member = self.member(name)
        read: Any = prompt if isinstance(prompt, str) else tuple(prompt)
        if read and isinstance(read[0], Message):
            read = answer_request(member, read, sampling, place=("chat",)).messages
        order = Order(
            member, read, sampling, seed, fits, tuple(stop), num_top, echo, hear, over
        )  # fmt: skip
        if member.engine in HERE:
            return self._here(order)
        engine = self._workshop.engine(member.engine)
        if member.engine == "openai":
            return engine.fulfil([order])[0]  # type: ignore[attr-defined]
        return self._plain(engine, order)

    def _here(self, order: Order) -> Written:
        """By the thread that has the weights; this one hears what is written meanwhile."""
        told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        left = threading.Event()
        hear = None if order.hear is None else lambda *piece: told.put(piece)
        placed = replace(order, hear=hear, given_up=lambda: left.is_set() or order.given_up())
        result = self._counter.put(("orders", order.member), placed)
        result.add_done_callback(lambda _: told.put(None))
        try:
            while (piece := told.get()) is not None:
                if order.hear is not None:
                    order.hear(*piece)
        except BaseException:
            left.set()
            raise
        if result.cancelled():
            return _failed("engine", "this place is closing")
        return result.result()

    def _plain(self, engine: Any, order: Order) -> Written:
        """By an engine that writes texts and tells nothing of them (a script; vLLM)."""
        member = order.member
        if order.num_top is not None or (order.echo and not isinstance(order.prompt, str)):
            return _failed("refused", f"{member.name} (engine {member.engine}) gives no "
                                      "log-probabilities here")  # fmt: skip
        if not order.is_chat and not isinstance(order.prompt, str):
            return _failed("refused", f"{member.name} (engine {member.engine}) reads no token ids "
                                      "here; send the prompt as text")  # fmt: skip
        if member.engine == "vllm" and not order.is_chat:
            return _failed("refused", f"{member.name} is served by vLLM, which is asked in "
                                      "conversations here; use chat completions")  # fmt: skip
        if member.engine == "vllm":
            return self._by_server(engine, order)
        with self._locks[member.engine] if member.engine in self._locks else ExitStack():
            response = engine.respond([request_of(order)])[0]
        written = _ended(written_from(response), order.stop)
        if order.echo and isinstance(order.prompt, str):
            written = replace(written, prompt_text=order.prompt)
        return _heard(written, order.hear)

    def _by_server(self, engine: Any, order: Order) -> Written:
        """By a vLLM server, which makes its own batches of what many threads ask for."""
        shown: list[str] = []

        def hear(piece: str) -> None:
            if order.given_up():
                raise Interrupted("nobody waits for this text any more")
            if order.hear is not None and not order.stop:
                shown.append(piece)
                order.hear(piece, ())

        written = written_from(engine.stream(request_of(order), hear))
        return _heard(_ended(written, order.stop), order.hear, "".join(shown))

    def _together(
        self,
        prompt: Prompt,
        sampling: Sampling,
        seed: int,
        stop: Sequence[str],
        num_top: int | None,
        hear: Hear | None,
        given_up: Callable[[], bool],
    ) -> Written:
        turns = () if isinstance(prompt, str) else tuple(prompt)
        if num_top is not None:
            return _failed("refused", "the collective gives no log-probabilities: several members "
                                      "make its answer; ask a member")  # fmt: skip
        if not turns or not isinstance(turns[0], Message):
            said = "the collective answers conversations and reads no prompt as it is"
            return _failed("refused", f"{said}; use chat completions, or ask a member")
        assert self.together is not None
        asker = Asker(self._respond, self._shown, hear if not stop else None, given_up)
        reached = answer(self.together, turns, sampling, seed, asker, self.config)
        if reached.response is None:
            return _failed("too_long" if asker.too_long else "engine", reached.reason)
        written = _ended(written_from(reached.response), stop)
        written = replace(written, num_prompt_tokens=asker.num_prompt_tokens,
                          num_completion_tokens=asker.num_completion_tokens)  # fmt: skip
        return _heard(written, hear, asker.shown)

    def _respond(self, name: str, requests: Sequence[Request]) -> list[Response]:
        """Requests of one engine, from any thread."""
        if name in HERE:
            result = self._counter.put(("requests", name), list(requests))
            try:
                return result.result()
            except CancelledError:
                raise Interrupted("this place is closing") from None
        engine = self._workshop.engine(name)
        with self._locks[name] if name in self._locks else ExitStack():
            return engine.respond(requests)

    def _shown(self, request: Request, hear: Hear, given_up: Callable[[], bool]) -> Response | None:
        """One request that is shown while it is written; None where its engine cannot."""
        assert isinstance(request.want, Sampling)
        if request.member.engine not in HERE:
            return None
        order = Order(
            request.member, request.messages, request.want, request.seed, hear=hear,
            given_up=given_up, shortenable=request.shortenable,
        )  # fmt: skip
        return response_from(self._here(order), request.id)


def _failed(kind: Any, message: str) -> Written:
    return Written(error=Failure(kind, message))


def _ended(written: Written, stop: Sequence[str]) -> Written:
    """A whole text, cut where one of the strings that end it begins."""
    at = cut_at(written.text, stop)
    return written if at is None else replace(written, text=written.text[:at], finish_reason="stop")


def _heard(written: Written, hear: Hear | None, shown: str = "") -> Written:
    """What was not shown yet is shown now. Raises EngineError where another text was shown."""
    if hear is None or written.error is not None:
        return written
    if not written.text.startswith(shown):
        raise EngineError(f"the text that was shown ({shown[:80]!r} …) is not the one that came")
    if rest := written.text[len(shown) :]:
        hear(rest, ())
    return written


# Opening -----------------------------------------------------------------------------------------


@contextmanager
def open_desk(
    source: Config | Path | str,
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    iteration: int | str | None = None,
    collective: str = AUTO,
    workshop: Workshop | None = None,
) -> Iterator[Desk]:
    """Members of a configuration, a preset, a pool's file, or a run, and their collective.

    ``members`` are the names of those to be talked to (default: everybody who writes). Of a run,
    ``iteration`` says as they were when: a number, ``latest`` (the default), or ``best``, by the
    mean of everybody measured on dev items. ``collective`` is one of
    :data:`phalanx.serving.collective.KINDS`, ``auto`` or ``none``.

    Raises ConfigError with every fault, and LedgerError for a folder that holds no run; no model is
    loaded before somebody is asked.
    """
    origin = _origin(source, overrides)
    number = _iteration(origin, "" if iteration is None else str(iteration))
    chosen = _chosen(origin, number, members)
    together = collective_of(origin, collective, number if origin.is_run else None)
    config = _in_this_process(origin.config)
    with ExitStack() as stack:
        shop = stack.enter_context(workshop or Workshop(config, origin.folder))

        def serve(kind: tuple[str, Any], things: list[Any]) -> Sequence[Any]:
            what, who = kind
            if what == "orders":
                return shop.engine(who.engine).fulfil(things)  # type: ignore[attr-defined]
            flat = [request for requests in things for request in requests]
            replies = iter(shop.engine(who).respond(flat))
            return [[next(replies) for _ in requests] for requests in things]

        counter = stack.enter_context(Counter(serve))
        desk = Desk(replace(origin, config=config), number, chosen, together, shop, counter)
        stack.callback(desk.closing.set)
        yield desk


def _origin(source: Config | Path | str, overrides: Sequence[str]) -> Origin:
    if isinstance(source, Config):
        if overrides:
            raise TypeError("overrides change a configuration while it is loaded, and this one is")
        return Origin(source, {0: made_members(source)})
    return origin_of(str(source), overrides)


def _iteration(origin: Origin, wanted: str) -> int:
    if wanted in ("", "latest"):
        return origin.last
    if wanted == "best" and origin.folder is not None:
        with Ledger(run_ledger_path(origin.folder)) as ledger:
            return _best(Table(ledger, [member.name for member in origin.versions[0]]), origin)
    if wanted.isdecimal() and int(wanted) in origin.versions:
        return int(wanted)
    have = f"0 to {origin.last}" if origin.last else "0 alone"
    kind = "the run has" if origin.is_run else "a configuration has"
    raise ConfigError(
        f"iteration {wanted!r}: {kind} {have}; latest or best (of a run) will do, too"
    )


def _best(table: Table, origin: Origin) -> int:
    """The iteration with the best mean over members on dev items; of equals the earlier one."""
    means: dict[int, float] = {}
    for number in origin.versions:
        levels = [
            macro(scores, table.domain)
            for name in table.members
            if (scores := table.of(number, name, "dev"))
        ]
        if levels:
            means[number] = sum(levels) / len(levels)
    if not means:
        raise ConfigError(
            "iteration best: nobody of this run was measured on dev items; it wants "
            "evaluate.dev_share above 0, or name an iteration"
        )
    return leading({number: means[number] for number in sorted(means)})


def _chosen(origin: Origin, number: int, names: Sequence[str]) -> list[Member]:
    """Whoever is to be talked to; every fault of the source in one message."""
    here = {member.name: member for member in origin.versions[number]}
    writing = {name: member for name, member in here.items() if member.engine != "reward"}
    recruit = None if origin.is_run else origin.config.pool.recruit
    unmade = [] if recruit is None else [name for name in recruit.specialists if name not in here]
    faults = [] if origin.is_run else list(rules.faults(origin.config, purpose="eval"))
    wanted = list(dict.fromkeys(names)) or [*writing, *unmade]
    for name in wanted:
        if name in unmade:
            faults.append(f"{name}: {UNMADE}")
        elif name in here and name not in writing:
            faults.append(f"{name} is a reward model: it gives scores and writes nothing")
        elif name not in writing:
            faults.append(f"no member is called {name!r}; {did_you_mean(name, list(writing))}")
    if not wanted and not faults:
        faults.append("there is nobody to talk to: list members in pool.members")
    if COLLECTIVE in wanted:
        faults.append(f"a member is called {COLLECTIVE!r}, as all of them together are; rename it")
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return [writing[name] for name in wanted]


def _in_this_process(config: Config) -> Config:
    """Without workers: conversations are served where the weights are loaded once."""
    alone = {"executor": "local", "workers": 1}
    return config.model_copy(update={"resources": config.resources.model_copy(update=alone)})
