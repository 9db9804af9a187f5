"""Answers by the mixture: to one conversation, to every row of a file, or turn by turn in a chat.

What is asked is recorded like anything else, so a file is taken up where it was left. The last
request of a single answer, the aggregator's, is shown while it is written where the engine can.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx import pool
from phalanx.asking import Asking, Spent, asking, refuse_unmade, spent, stop_on_interrupt
from phalanx.collective.mixture import Mixed, Mixture, Proposal, mix, mixture_from
from phalanx.collective.ownwords import answer_alone
from phalanx.config.schema import Config
from phalanx.dispatch import is_settled
from phalanx.engines.streaming import Shown, answer_so_far
from phalanx.errors import ConfigError, Interrupted
from phalanx.identity import content_id
from phalanx.sources import InstructionSet, clean_text, read_instructions
from phalanx.turns import BadTurns, looks_like_turns, read_turns
from phalanx.types import Instruction, Message, Progress, Request, Response
from phalanx.workshop import Workshop

Show = Callable[[str], None]


def instruction_of(prompt: str | Sequence[Mapping[str, str]], number: int) -> Instruction:
    """A prompt of one's own; its number keeps repeated ones apart. Raises ConfigError for
    turns that are no conversation."""
    turns = prompt if looks_like_turns(prompt) else [{"role": "user", "content": prompt}]
    try:
        read = read_turns(turns)
    except BadTurns as fault:
        raise ConfigError(f"prompt {number}: {fault}") from None
    first, *later = (replace(turn, content=clean_text(turn.content)) for turn in read)
    return Instruction(content_id(number, first, *later), first.content, later=tuple(later))


class Mixer:
    """The mixture of a configuration, ready to answer. Made by :func:`open_mixer`."""

    def __init__(self, place: Asking, mixture: Mixture) -> None:
        self.place = place
        self.mixture = mixture

    @property
    def title(self) -> str:
        """Who proposes, layer by layer, and who writes the answer."""
        layers = [", ".join(member.name for member in layer) for layer in self.mixture.layers]
        samples = self.mixture.settings.samples
        times = f" ({samples} samples each)" if samples > 1 and layers else ""
        return " → ".join([*layers, self.mixture.aggregator.name]) + times

    def spent(self) -> Spent:
        return spent(self.place)

    def answer(
        self,
        conversation: Sequence[Message],
        show: Show | None = None,
        *,
        place: tuple[Any, ...] = (),
        stop: Callable[[], bool] | None = None,
    ) -> Mixed:
        """Answer the last user turn of a conversation of user and assistant turns.

        ``show`` gets the aggregator's text piece by piece where its engine can stream. ``place``
        tells one answer to a conversation from another one to the same. ``stop`` is looked at in
        between (default: Ctrl-C); Interrupted is raised where it says so.
        """
        here = self.place if stop is None else replace(self.place, should_stop=stop)
        ask = here.ask(0) if show is None else _Streaming(here, show)
        where = ("mix", self.place.config.seed, *place)
        return mix([conversation], self.mixture, ask, place=where)[0]

    def answers(self, instructions: Sequence[Instruction]) -> list[Mixed]:
        """Answers to the last user turns of all conversations, a layer at a time for all."""
        conversations = [conversation_of(instruction) for instruction in instructions]
        where = ("mix", self.place.config.seed)
        return mix(conversations, self.mixture, self.place.ask(0), place=where)


@contextmanager
def open_mixer(
    config: Config,
    folder: Path | str,
    *,
    inputs: str,
    instructions: Sequence[Instruction] = (),
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Iterator[Mixer]:
    """The mixture of ``config``, recording in ``folder``; ``inputs`` is a content id of the rest.

    Raises ConfigError where the mixture has members that are yet to be made, LedgerError where
    the folder holds something else.
    """
    refuse_unmade(config, mixture_from(config, pool.members_from(config)).members)
    with asking(
        config,
        folder,
        kind="mix",
        inputs=inputs,
        instructions=instructions,
        progress=progress,
        workshop=workshop,
    ) as place:
        yield Mixer(place, mixture_from(config, place.ledger.members()))


def conversation_of(instruction: Instruction) -> tuple[Message, ...]:
    """The turns of an instruction, from its first user turn to its last one."""
    return (Message("user", instruction.text), *instruction.later)


# A file ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MixedFile:
    """One row for every row of the input, in its order (``line``), and what became of them.

    ``counts``: ``answered``, ``without answer``, ``bad row``; they sum up to the rows of the
    file. ``left_out``: failed or empty proposals by member.
    """

    rows: tuple[dict[str, Any], ...]
    counts: dict[str, int]
    left_out: dict[str, int]
    spent: Spent
    seconds: float


def read_prompts(path: str, config: Config) -> InstructionSet:
    """Every row of a file, repeated texts too: each row is to get its answer.

    Columns and the treatment of bad rows are those of ``instructions``.
    """
    settings = config.instructions
    return read_instructions(
        path,
        column=settings.column,
        bad_rows=settings.bad_rows,
        duplicates="keep",
        split=settings.split,
    )


def mix_file(
    config: Config,
    prompts: InstructionSet,
    folder: Path | str,
    *,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> MixedFile:
    """Answer every row; the same call on the same folder goes on where it was stopped."""
    began = time.monotonic()
    with open_mixer(
        config,
        folder,
        inputs=content_id("mix", prompts.instructions),
        instructions=prompts.instructions,
        progress=progress,
        workshop=workshop,
    ) as mixer:
        answers = mixer.answers(prompts.instructions)
        cost = mixer.spent()
        mixer.place.ledger.put("finished", "yes")
    rows = [
        {"line": line, **row_of(one, mixed)}
        for line, one, mixed in zip(prompts.lines, prompts.instructions, answers, strict=True)
    ]
    bad = [
        {"line": row.line, "response": None, "reason": f"bad row: {row.reason}"}
        for row in prompts.skipped
    ]
    answered = sum(mixed.response is not None for mixed in answers)
    counts = {"answered": answered, "without answer": len(answers) - answered, "bad row": len(bad)}
    left_out = Counter(p.member for mixed in answers for p in mixed.proposals if left_out_why(p))
    rows = sorted([*rows, *bad], key=lambda row: row["line"])
    return MixedFile(tuple(rows), counts, dict(left_out), cost, time.monotonic() - began)


def row_of(instruction: Instruction, mixed: Mixed) -> dict[str, Any]:
    """An answer as a line of a file: the response or the reason why there is none."""
    row: dict[str, Any] = {"id": instruction.id, "instruction": instruction.text}
    if instruction.later:
        turns = conversation_of(instruction)
        row["messages"] = [{"role": turn.role, "content": turn.content} for turn in turns]
    row["response"] = mixed.response.text if mixed.response else None
    row["truncated"] = bool(mixed.response and mixed.response.truncated)
    row["proposals"] = [_proposal_row(proposal) for proposal in mixed.proposals]
    row["reason"] = mixed.reason
    return row


def _proposal_row(proposal: Proposal) -> dict[str, Any]:
    row: dict[str, Any] = {
        "layer": proposal.layer,
        "member": proposal.member,
        "sample": proposal.sample,
        "text": None if proposal.response.error else proposal.text,
    }
    if why := left_out_why(proposal):
        row["left_out"] = why
    return row


def left_out_why(proposal: Proposal) -> str:
    """Why no aggregator saw a proposal, or ""."""
    error = proposal.response.error
    if error is not None:
        return f"{error.kind}: {error.message}"
    if proposal.usable:
        return ""
    return "nothing but reasoning" if (proposal.response.text or "").strip() else "empty"


# Streaming ---------------------------------------------------------------------------------------


class _Streaming:
    """An ``ask`` that shows the one aggregate answer while it is written, and records it.

    Reasoning in marks is held back. Everything else goes the ordinary way, and so does an answer
    that is recorded already or was tried often enough, or whose stream broke in a way that may
    pass; the caller compares what was shown with the answer.
    """

    def __init__(self, place: Asking, show: Show) -> None:
        self._place = place
        self._ask = place.ask(0)
        self._show = show

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        if not phase.endswith("aggregate") or len(requests) != 1:
            return self._ask(phase, requests)
        request = requests[0]
        engine = self._place.engine(request.member.engine)
        stored = self._place.ledger.responses([request.id])
        settled = any(is_settled(reply, tries) for reply, tries in stored.values())
        if settled or not hasattr(engine, "stream"):
            return self._ask(phase, requests)
        self._place.check_stop()
        response = self._streamed(phase, request, engine, stored)
        if response.error is not None and response.error.transient:
            return self._ask(phase, requests)
        return [response]

    def _streamed(
        self, phase: str, request: Request, engine: Any, stored: dict[str, tuple[Response, int]]
    ) -> Response:
        """The response, recorded. What an answer has cost is recorded also where it is ended."""
        ledger = self._place.ledger
        tries = sum(tries for _, tries in stored.values()) + 1
        asked = ledger.count("responses", "iteration = 0 AND phase = ?", (phase,)) + (not stored)
        began = time.monotonic()
        answered: list[tuple[Request, Response, int]] = []
        shown, written = Shown(self._show), []

        def hear(piece: str) -> None:
            if self._place.should_stop():
                raise Interrupted("stopped while the answer was written; its proposals are kept")
            written.append(piece)
            shown.up_to(answer_so_far("".join(written)))

        try:
            response = engine.stream(request, hear)
            answered.append((request, response, tries))
        finally:
            seconds = time.monotonic() - began
            facts = engine.facts() if hasattr(engine, "facts") else {}
            ledger.record_responses(0, phase, answered, seconds, facts)
            ledger.add_seconds(0, phase, seconds, asked)
            for text in getattr(engine, "news", tuple)():
                self._place.progress.say(text)
        shown.up_to(answer_alone(response.text or ""))
        return response


# A chat ------------------------------------------------------------------------------------------


class Chat:
    """A conversation with the mixture: the history has user turns and aggregated answers."""

    def __init__(self, mixer: Mixer) -> None:
        self._mixer = mixer
        self._number = 0
        self.history: tuple[Message, ...] = ()

    def new(self) -> None:
        """Forget the conversation."""
        self.history = ()

    def say(self, text: str, show: Show | None = None) -> Mixed:
        """Answer the next user turn. One without an answer is not remembered.

        Ctrl-C ends the answer: Interrupted is raised, the history is what it was, and the same
        turn goes on with the proposals that are there.
        """
        turns = (*self.history, Message("user", clean_text(text)))
        with stop_on_interrupt() as stop:
            mixed = self._mixer.answer(turns, show, place=("chat", self._number), stop=stop)
        if mixed.response is not None:
            self._number += 1
            self.history = (*turns, Message("assistant", mixed.response.text or ""))
        return mixed
