"""Judges under test: every judge of a pool on pairs whose better response is known.

Each pair is a duel, judged by ``judge.protocol`` as in a run. What is recorded is all that the
table is made from: :mod:`phalanx.report.judged_facts` reads it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.asking import Asking, asking
from phalanx.benchmarks.pair_files import PairFile, usable
from phalanx.benchmarks.panel_readings import Side, TestedPair
from phalanx.benchmarks.panel_test import writer_name
from phalanx.benchmarks.records import ManyResponses, Pair
from phalanx.collective.comparing import RANKER
from phalanx.collective.hearing import hear, settle
from phalanx.collective.panel import judging_metrics
from phalanx.collective.reputation import initial_standing
from phalanx.config.mixing import MOA
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json, content_id
from phalanx.measuring.judges_source import Bench, families
from phalanx.sources import clean_text
from phalanx.types import (
    Duel,
    Instruction,
    IterationResult,
    Progress,
    Standing,
)
from phalanx.workshop import Workshop

KIND = "judge-bench"
LEFT, RIGHT = "file#A", "file#B"
"""Contestants: no member has such a name, so that everybody may judge."""

Texts = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Put:
    """What is put before judges: ``duels`` with their texts, and the ``pairs`` that they decide.

    ``many`` are prompts whose responses were scored one by one: for each the right ones and where
    their scores are. ``left_out`` counts pairs by the reason.
    """

    duels: tuple[tuple[Duel, Texts], ...]
    pairs: tuple[TestedPair, ...]
    many: tuple[dict, ...]
    left_out: dict[str, int]


def put_pairs(file: PairFile, known_families: Mapping[str, str]) -> Put:
    """From rows to duels. ``known_families`` has those of writers by name; other writers are
    taken for the name of a model. Raises ConfigError where nothing is left to judge."""
    left_out = Counter(dict(file.left_out))
    if file.many:
        duels, pairs, many = _responses(file.many)
        if lacking := len(file.many) - len({pair.id.rpartition("#")[0] for pair in pairs}):
            left_out["prompts without a right and a wrong response"] = lacking
    else:
        kept, unusable = usable(file.pairs)
        left_out.update(unusable)
        duels, pairs, many = [], [], []
        for pair in kept:
            duel, texts = _duel(pair)
            duels.append((duel, texts))
            pairs.append(_tested(pair, duel, texts, known_families))
    if not pairs:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise ConfigError(f"there is no pair to test judges with ({why})", file.where)
    return Put(tuple(duels), tuple(pairs), tuple(many), dict(left_out))


def _duel(pair: Pair) -> tuple[Duel, Texts]:
    text = clean_text(pair.instruction.strip())
    texts = (clean_text(pair.response_a), clean_text(pair.response_b))
    key = content_id(KIND, pair.id, text, texts)
    return Duel(key, Instruction(content_id(text), text), LEFT, RIGHT, matched="ranking"), texts


def _tested(pair: Pair, duel: Duel, texts: Texts, known_families: Mapping[str, str]) -> TestedPair:
    theirs = tuple(
        given or known_families.get(writer_name(writer), writer)
        for given, writer in zip(pair.families, pair.writers, strict=True)
    )
    return TestedPair(
        id=pair.id,
        prompt=duel.instruction.id,
        group=pair.group,
        label="A" if pair.label == "A" else "B",
        lengths=(len(texts[0]), len(texts[1])),
        sides=(Side(duel.id, "left"), Side(duel.id, "right")),
        writers=pair.writers,
        families=(theirs[0], theirs[1]),
    )


def _responses(
    rows: Iterable[ManyResponses],
) -> tuple[list[tuple[Duel, Texts]], list[TestedPair], list[dict]]:
    """Every response is scored once, two of them in a duel (of an odd number the last one meets
    the first again); the pairs are the conflicts that the row names, or else every wrong response
    with a right one, in turn."""
    duels, pairs, many = [], [], []
    for row in rows:
        sides: list[Side] = []
        shown = list(row.responses)
        for at in range(0, len(shown), 2):
            two = (shown[at], shown[at + 1] if at + 1 < len(shown) else shown[0])
            duel, texts = _duel(
                Pair(f"{row.group}/{row.id}/{at}", row.instruction, *two, label="A")
            )
            duels.append((duel, texts))
            sides += [Side(duel.id, "left"), Side(duel.id, "right")]
        sides = sides[: len(shown)]
        for number, (good, bad) in enumerate(_conflicts(row)):
            first, second = (good, bad) if number % 2 == 0 else (bad, good)
            pairs.append(
                TestedPair(
                    id=f"{row.group}/{row.id}#{number}",
                    prompt=duels[-1][0].instruction.id,
                    group=row.group,
                    label="A" if number % 2 == 0 else "B",
                    lengths=(len(shown[first]), len(shown[second])),
                    sides=(sides[first], sides[second]),
                )
            )
        many.append({"id": row.id, "group": row.group, "right": row.right, "sides": sides})
    return duels, pairs, many


def _conflicts(row: ManyResponses) -> list[tuple[int, int]]:
    """(right one, wrong one) places."""
    if row.conflicts:
        return [(one, two) if row.right[one] else (two, one) for one, two in row.conflicts]
    right = [at for at, good in enumerate(row.right) if good]
    wrong = [at for at, good in enumerate(row.right) if not good]
    return [(right[at % len(right)], bad) for at, bad in enumerate(wrong)] if right else []


# Judging -----------------------------------------------------------------------------------------


def judge_bench(
    bench: Bench,
    file: PairFile,
    folder: Path | str,
    *,
    writers: Mapping[str, str] = {},
    flags: Mapping[str, object] = {},
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Path:
    """Judge every pair by every judge, at every iteration of ``bench``; returns ``folder``.

    The same call on the same folder goes on; failed requests are asked again. A judge that did not
    change between two iterations is asked once. ``writers`` has the family of writers who are not
    in the pool, by name. Raises ConfigError before anybody is asked where scores of single
    responses are needed and the protocol has none.
    """
    # Everybody judges everything: a draw would leave judges with different pairs.
    judging = bench.config.judge.model_copy(update={"per_duel": None})
    config = bench.config.model_copy(update={"judge": judging})
    bench = replace(bench, config=config)
    if file.many and config.judge.protocol in ("pairwise", MOA):
        raise ConfigError(
            f"{file.where}: the best of many responses is picked by scores of single ones, which "
            f"judge.protocol {config.judge.protocol!r} has not; set judge.protocol to expected, "
            "likelihood, rubric or reward"
        )
    known = families(bench)
    put = put_pairs(file, {**writers, **known})
    about = {
        "where": file.where, "format": file.format, "left_out": put.left_out, "families": known,
        "iterations": bench.iterations,
    }  # fmt: skip
    facts = {
        "num_iterations": str(max(bench.iterations)),
        "bench": canonical_json(about),
        "pairs": canonical_json(put.pairs),
        "many": canonical_json(put.many),
    }
    with asking(
        config,
        folder,
        kind=KIND,
        inputs=content_id(KIND, put.duels, put.pairs, list(bench.pools.items()),
                          list(bench.reputations.items())),
        members=bench.members,
        instructions=[duel.instruction for duel, _ in put.duels],
        facts=facts,
        flags=flags,
        progress=progress,
        workshop=workshop,
    ) as place:  # fmt: skip
        for number in bench.iterations:
            _judge(place, bench, put, number)
        place.ledger.put("finished", "yes")
    return Path(folder)


def _judge(place: Asking, bench: Bench, put: Put, number: int) -> None:
    """One iteration. Ids of requests do not depend on it: only who changed is asked again, and
    noise is the same before and after."""
    config = place.config
    judgments, heard = hear(put.duels, bench.pools[number], config, place.ask(number), work=KIND)
    if put.many and (rankers := {one.judge for one in judgments if RANKER in one.flags}):
        raise ConfigError(
            f"{', '.join(sorted(rankers))}: rankers have no scores of single responses, which the "
            "best of many is picked by; leave them out with --members"
        )
    duels = [duel for duel, _ in put.duels]
    outcomes = settle(duels, {}, judgments, _reputations(bench, number), config)
    standings = {
        name: Standing(value=value) for name, value in bench.reputations.get(number, {}).items()
    }
    result = IterationResult(
        duels=tuple(replace(duel, id=at_iteration(duel.id, number)) for duel in duels),
        judgments=tuple(
            replace(one, duel_id=at_iteration(one.duel_id, number)) for one in judgments
        ),
        outcomes=tuple(replace(one, duel_id=at_iteration(one.duel_id, number)) for one in outcomes),
        standings=standings,
        metrics={**judging_metrics(judgments, outcomes), **heard},
    )
    place.ledger.record_iteration(number, result, replace=True)


def at_iteration(duel: str, number: int) -> str:
    """The id under which a pair is recorded; what is before the @ is the same at every time."""
    return f"{duel}@{number}"


def _reputations(bench: Bench, number: int) -> dict[str, float]:
    """Of all members at an iteration, by name; who has none yet stands where the rule begins."""
    initial = initial_standing(bench.config.reputation).value
    known = bench.reputations.get(number, {})
    return {one.name: known.get(one.name, initial) for one in bench.pools[number]}
