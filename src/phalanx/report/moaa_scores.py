"""Students, teachers and the mixture on the same test items; teachers are chosen on dev.

Every comparison resamples the items with both scores. The mixture is a row of ``evaluations``
under the name "mixture".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import Config
from phalanx.config.staging import stage_of
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger
from phalanx.report.moaa_records import (
    AnswerCost,
    Comparison,
    Level,
    Ratio,
    ResultFacts,
)
from phalanx.report.scores import Item, Table, compare, domain_mean, leading, macro, weighted
from phalanx.statistics import (
    Interval,
    percentiles,
    resampled_ratios,
)
from phalanx.statistics.paired import detectable, paired_test
from phalanx.statistics.scores import DRAWS

Students = Sequence[tuple[str, str, str]]


def result(
    ledger: Ledger,
    config: Config,
    students: Students,
    teachers: Sequence[str],
    answers: Sequence[AnswerCost],
) -> ResultFacts:
    """Levels, comparisons and shares of the mixture; a note where there is nothing to compare."""
    if not ledger.count("evaluations"):
        return ResultFacts(note="no evaluation has been recorded, so nothing can be compared")
    table = Table(ledger, [*dict.fromkeys([*(name for name, *_ in students), *teachers])])
    places = _places(ledger, table, students, teachers)
    levels = tuple(
        level for place in places if (level := _level(table, *place, config.seed)) is not None
    )
    if not levels:
        return ResultFacts(note="no item is in the test split; lower evaluate.dev_share")
    first = table.iterations[0]
    best = _best_teacher(levels, teachers)
    items = {split: len(table.of(first, levels[0].name, split)) for split in ("dev", "test")}
    return ResultFacts(
        levels=levels,
        comparisons=tuple(_comparisons(table, levels, students, best, config)),
        ratios=tuple(_ratios(table, levels, answers, config.seed)),
        best_teacher=best.name if best else "",
        num_dev=items["dev"],
        num_test=items["test"],
        note=_note(best, first),
        unmeasured=tuple(
            name
            for name in dict.fromkeys([*(name for name, *_ in students), *teachers])
            if not any(level.name == name for level in levels)
        ),
    )


def _note(best: Level | None, first: int) -> str:
    if first != 0:
        return "nothing was measured before the first stage, so there is no start to compare with"
    if best is None:
        return "no teacher was measured on dev items, so students are compared with no teacher"
    return ""


def _places(
    ledger: Ledger, table: Table, students: Students, teachers: Sequence[str]
) -> list[tuple[str, str, int]]:
    """(name, role, iteration) worth a line: a member as it first was, and whenever it had learned.

    A teacher is measured as it was at the start, also where it is a student as well.
    """
    trained: dict[str, list[int]] = {}
    for row in ledger.query("SELECT iteration, member FROM trainings ORDER BY iteration"):
        trained.setdefault(row["member"], []).append(row["iteration"])
    places = []
    for name, *_ in students:
        before = -1
        for number in table.iterations:
            since = any(before < at <= number for at in trained.get(name, []))
            if before < 0 or since:
                places.append((name, "student", number))
            before = number
    own = {name for name, *_ in students}
    first = table.iterations[0]
    places += [(name, "teacher", first) for name in teachers if name not in own]
    places += [(MIXTURE, MIXTURE, number) for number in table.iterations]
    return places


def _level(table: Table, name: str, role: str, number: int, seed: int) -> Level | None:
    dev, test = table.of(number, name, "dev"), table.of(number, name, "test")
    if not test:
        return None
    level, interval = domain_mean(test, table.domain, derive_seed("report", seed, name, number))
    return Level(
        name=name,
        role=role,
        iteration=number,
        dev=macro(dev, table.domain) if dev else None,
        test=level,
        interval=interval,
        num_test=len(test),
    )


def _best_teacher(levels: Sequence[Level], teachers: Sequence[str]) -> Level | None:
    """By dev accuracy at the start; of equals the first. A teacher may be a student as well."""
    starts = {level.name: level for level in reversed(levels)}
    known = {
        name: starts[name].dev or 0.0
        for name in teachers
        if name in starts and starts[name].dev is not None
    }
    return starts[leading(known)] if known else None


def _comparisons(
    table: Table, levels: Sequence[Level], students: Students, best: Level | None, config: Config
) -> list[Comparison]:
    """Each student's levels against those before them, the best teacher, baselines, the mixture."""
    found: list[Comparison | None] = []
    builder = {name: data for name, data, _ in students}
    mixtures = [level for level in levels if level.role == MIXTURE]
    for name, *_ in students:
        mine = [level for level in levels if level.name == name]
        for place, level in enumerate(mine[1:], start=1):
            found.append(_comparison(table, level, mine[place - 1], "stage", config.seed))
            begun = _before_generation(mine[:place], level, config)
            if begun is not None and begun is not mine[place - 1]:
                found.append(_comparison(table, level, begun, "generation", config.seed))
            if best is not None:
                found.append(_comparison(table, level, best, "teacher", config.seed))
            if mixtures:
                found.append(_comparison(table, level, mixtures[0], MIXTURE, config.seed))
            if builder[name] == MIXTURE:
                # A baseline may have no stage dpo: what it came to so far, once it had learned.
                rivals = {
                    rival.name: rival
                    for rival in levels
                    if rival.role == "student"
                    and builder[rival.name] != MIXTURE
                    and 0 < rival.iteration <= level.iteration
                }
                for rival in rivals.values():
                    found.append(_comparison(table, level, rival, "baseline", config.seed))
    return [comparison for comparison in found if comparison is not None]


def _before_generation(earlier: Sequence[Level], level: Level, config: Config) -> Level | None:
    """The student's last level before the generation in which ``level`` was measured."""
    first = stage_of(config, level.iteration).first
    before = [one for one in earlier if one.iteration < first]
    return before[-1] if before else None


def _comparison(
    table: Table, level: Level, other: Level, against: str, seed: int
) -> Comparison | None:
    after = table.of(level.iteration, level.name, "test")
    before = table.of(other.iteration, other.name, "test")
    label = f"{level.name}@{level.iteration} over {other.name}@{other.iteration}"
    change = compare(table, label, "", before, after, seed)
    if change is None:
        return None
    items = [item for item in before if item in after]
    pair = [before[item] for item in items], [after[item] for item in items]
    return Comparison(
        name=level.name,
        iteration=level.iteration,
        against=against,
        other=other.name,
        other_iteration=other.iteration,
        change=change,
        pvalue=paired_test(*pair, seed=derive_seed("report", seed, label)).pvalue,
        detectable=detectable(*pair),
    )


def _ratios(
    table: Table, levels: Sequence[Level], answers: Sequence[AnswerCost], seed: int
) -> list[Ratio]:
    """Each student's last level beside the mixture as it was first measured."""
    whole = next((level for level in levels if level.role == MIXTURE), None)
    if whole is None:
        return []
    cost = {answer.name: answer for answer in answers}
    ratios = []
    last = {level.name: level for level in levels if level.role == "student"}
    for name, level in last.items():
        part = table.of(level.iteration, name, "test")
        full = table.of(whole.iteration, MIXTURE, "test")
        place = derive_seed("report ratio", seed, name, level.iteration)
        share = ratio(part, full, table.domain, seed=place)
        if share is None or level.iteration == 0:
            continue
        own, mixed = cost.get(name), cost.get(MIXTURE)
        ratios.append(
            Ratio(
                student=name,
                iteration=level.iteration,
                accuracy=share[0],
                interval=share[1],
                tokens=_part(own and own.tokens, mixed and mixed.tokens),
                weighted=_part(own and own.weighted, mixed and mixed.weighted),
                money=_part(own and own.money, mixed and mixed.money),
            )
        )
    return ratios


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def ratio(
    part: Mapping[Item, float],
    whole: Mapping[Item, float],
    domain: Mapping[Item, str],
    *,
    seed: int,
) -> tuple[float, Interval] | None:
    """Mean of ``part`` over mean of ``whole`` on the items that both have, with a paired
    percentile bootstrap interval; None where ``whole`` is 0, or is in more than 2.5 % of the draws.
    """
    items = [item for item in part if item in whole]
    if not items:
        return None
    x = weighted({item: part[item] for item in items}, domain)
    y = weighted({item: whole[item] for item in items}, domain)
    if not sum(y):
        return None
    shares = resampled_ratios(x, y, seed=seed, draws=DRAWS)
    if len(shares) < 0.975 * DRAWS:
        return None
    return sum(x) / sum(y), percentiles(shares)
