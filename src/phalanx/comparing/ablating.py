"""``phalanx ablate sparta``: run the whole method and what is left of it, and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from phalanx.comparing.ablation import FULL, Study, study
from phalanx.comparing.loading import comparison_of
from phalanx.comparing.rendering import verdict
from phalanx.comparing.spec import FROZEN, Comparison
from phalanx.comparing.table import Difference, Findings
from phalanx.comparing.work import Compared, begun_in, compare_to
from phalanx.config.loading import load
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.plan import content_faults
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.words import plural, points
from phalanx.reproducing.papers import load_paper
from phalanx.types import Progress


def ablate_to(
    source: str,
    overrides: Sequence[str],
    out: Path,
    *,
    title: str,
    seeds: Sequence[int] = (),
    groups: Sequence[str] = (),
    only: Sequence[str] = (),
    jobs: int = 1,
    table: bool = False,
    progress: Progress,
) -> Compared:
    """Run every way that is owed in ``out``, and write the table of these and of every other way
    that has begun there; see :func:`study` for the ways.

    ``seeds``: by default the configuration's and the one after it. Every way is compared with the
    whole method and with the best initial member. Raises ConfigError with every fault, and as
    :func:`phalanx.comparing.work.compare_to`.
    """
    config, chosen = _chosen(source, overrides, groups, only)
    known = _with_begun(
        chosen, study(config), {n for names in begun_in(out).values() for n in names}
    )
    return compare_to(
        _comparison(chosen, config, source, overrides, seeds),
        out,
        known=_comparison(known, config, source, overrides, seeds),
        title=title,
        jobs=jobs,
        table=table,
        progress=progress,
        against=(FULL, FROZEN),
        more=lambda findings: sections(known, findings),
    )


def refuse_others(method: str) -> None:
    """Raise ConfigError for a method that is not taken apart here."""
    if method != FULL:
        raise ConfigError(f"ablate {method!r}: only {FULL} is taken apart here")


def ablation(
    method: str,
    source: str,
    overrides: Sequence[str],
    *,
    seeds: Sequence[int] = (),
    groups: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Comparison:
    """What :func:`ablate_to` runs."""
    refuse_others(method)
    config, chosen = _chosen(source, overrides, groups, only)
    return _comparison(chosen, config, source, overrides, seeds)


def _chosen(
    source: str, overrides: Sequence[str], groups: Sequence[str], only: Sequence[str]
) -> tuple[Config, Study]:
    config = load(source, overrides, also=(content_faults,))
    return config, study(config, groups, only)


def _comparison(
    of: Study, config: Config, source: str, overrides: Sequence[str], seeds: Sequence[int]
) -> Comparison:
    wish = of.file(source, seeds or (config.seed, config.seed + 1))
    return comparison_of(wish, source, Path(), overrides)


def _with_begun(chosen: Study, whole: Study, begun: Collection[str]) -> Study:
    """The study with every further way that has begun, idle beside another or not."""
    names = {way.name for way in chosen.ways}
    others = [
        replace(way, idle="")
        for way in (*whole.ways, *whole.idle)
        if way.name in begun and way.name not in names
    ]
    idle = (way for way in chosen.idle if way.name not in begun)
    return Study((*chosen.ways, *others), tuple(idle))


def sections(chosen: Study, findings: Findings) -> list[Section]:
    """What each way takes away, what is not run, and what is known of the paper beside it."""
    owed = Counter(one.name for one in findings.missing)
    words = {
        way.name: (
            way.words,
            way.note,
            f"not finished in {plural(owed[way.name], 'seed')}" if owed[way.name] else "",
        )
        for way in chosen.ways
    }
    ways = tuple((name, "; ".join(filter(None, said))) for name, said in words.items())
    idle = tuple((way.name, way.idle) for way in chosen.idle)
    found = [
        Section(
            "ways", "What each way takes away", (),
            (TableView("Run", ("way", "takes away"), ways),) if ways else (),
        )
    ]  # fmt: skip
    if idle:
        view = TableView("Not run here", ("way", "why"), idle)
        found.append(Section("idle", "What this configuration cannot lose", (), (view,)))
    rows = {row.name: row.differences.get(FULL) for row in findings.rows}
    beside = tuple(
        (way.name, way.paper, _here(rows.get(way.name))) for way in chosen.ways if way.paper
    )
    if beside and any(row.trained for row in findings.rows):  # else nothing was put to the test
        view = TableView("Direction", ("way", "paper", "here"), beside, left=(0, 1, 2))
        found.append(Section("paper", "Beside the paper", tuple(_known()), (view,)))
    return found


def _here(one: Difference | None) -> str:
    if one is None:
        return "not finished"
    if one.alike:
        return "the same scores"
    return f"{points(one.value)} points, {verdict(one)}"


def _known() -> Iterator[str]:
    """What is known of the paper's table here, and where from."""
    paper = load_paper("sparta")
    (table,) = paper.chosen("ablations")
    yield f"{paper.title}, {table.paper}, on {', '.join(c.title for c in table.columns.values())}."
    yield from table.cannot
    yield f"note: {paper.sources['note']}."
