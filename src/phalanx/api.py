"""The command line's verbs in Python.

```python
import phalanx

run = phalanx.run("config.yaml", out="runs/mine")   # starts, or goes on
run.preferences()                                   # rows for TRL
run.reputations()                                   # who stands where
run.report("report.html")
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from phalanx import config as _config
from phalanx.config.rules_moaa import Purpose
from phalanx.config.schema import Config
from phalanx.config.stored import readable
from phalanx.errors import ConfigError
from phalanx.export import ANSWERS, TOOLS, export, rows_of
from phalanx.export_answers import export_answers
from phalanx.handing.tools import export_for
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.measuring.judges import judge_bench as test_judges
from phalanx.measuring.judges_wanted import wanted_bench
from phalanx.measuring.wanted import wanted
from phalanx.measuring.work import measure_subjects
from phalanx.methods import METHODS
from phalanx.mixing import instruction_of, mix_file
from phalanx.plan import content_faults
from phalanx.progress import Silent
from phalanx.report.facts import RunFacts, gather
from phalanx.report.html import write_html
from phalanx.report.markdown import write_markdown
from phalanx.reproducing import Reproduction, reproduce_to
from phalanx.reproducing import Wish as WishOfPaper
from phalanx.rows import Row, Table
from phalanx.sources import InstructionSet
from phalanx.synthesis import Synthesis, Wish
from phalanx.synthesis import synthesise as synthesise_to
from phalanx.types import Member, Progress
from phalanx.verdicts import Verdicts, cases_of, judge_file, read_cases
from phalanx.workshop import Workshop

if TYPE_CHECKING:
    from phalanx.comparing.work import Compared

__all__ = [
    "Run",
    "ablate",
    "compare",
    "judge",
    "judge_bench",
    "list_methods",
    "load_config",
    "measure",
    "mix",
    "open_run",
    "reproduce",
    "run",
    "synthesise",
]


class Run:
    """A run folder, read-only: every method reads the ledger anew.

    Raises LedgerError where the folder holds no run.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        with self._ledger():
            pass

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _ledger(self) -> Ledger:
        return Ledger(run_ledger_path(self.folder))

    @property
    def config(self) -> Config:
        """What the run was started with."""
        with self._ledger() as ledger:
            return readable(ledger.get("config"), self.folder)

    @property
    def finished(self) -> bool:
        """Whether all iterations are done; False also while it goes on."""
        with self._ledger() as ledger:
            return ledger.get("finished") is not None

    def members(self, iteration: int | None = None) -> list[Member]:
        """The newest version of every member, or the version when ``iteration`` had ended."""
        with self._ledger() as ledger:
            return ledger.members(iteration)

    def rows(self, what: str, **options: Any) -> list[dict[str, Any]]:
        """``preferences``, ``judgments``, ``evaluations`` ... (see ``export``) as dictionaries."""
        with self._ledger() as ledger:
            return list(rows_of(ledger, what, **options))

    def preferences(self, *, conversational: bool = False) -> list[dict[str, Any]]:
        """The kept pairs: ``prompt``, ``chosen``, ``rejected`` as TRL reads them, and more."""
        return self.rows("preferences", conversational=conversational)

    def judgments(self) -> list[dict[str, Any]]:
        """A row for each judgment; ``score_left`` and ``score_right`` are None where unreadable."""
        return self.rows("judgments")

    def responses(self) -> list[dict[str, Any]]:
        """A row for each response of any phase: who wrote it, to which messages, how it ended."""
        return self.rows("responses")

    def reputations(self) -> dict[str, float]:
        """Each member's reputation after the last recorded iteration."""
        with self._ledger() as ledger:
            last = ledger.query("SELECT max(iteration) AS number FROM states")[0]["number"]
            if last is None:
                return {}
            return {name: s.value for name, s in ledger.state(last)["standings"].items()}

    def facts(self) -> RunFacts:
        """Every number that the summary and the report show."""
        with self._ledger() as ledger:
            return gather(ledger)

    def report(self, path: Path | str | None = None) -> Path:
        """Write the report: ``report.html`` in the run folder, or ``path``; ``.md`` is Markdown."""
        target = Path(path) if path else self.folder / "report.html"
        with self._ledger() as ledger:
            ledger.refuse_target(target)
            if target.suffix == ".md":
                write_markdown(gather(ledger), target)
            else:
                write_html(gather(ledger), target, ledger)
        return target

    def export(self, what: str, out: Path | str, **options: Any) -> int:
        """Write rows as jsonl, parquet or a ``datasets`` folder, or for a trainer (``format`` is
        its name): how many. ``alpaca-eval`` and ``arena-hard`` are files as those tools read them.
        """
        with self._ledger() as ledger:
            if (tool := options.get("format")) in TOOLS:
                more = {name: value for name, value in options.items() if name != "format"}
                return export_for(ledger, what, str(tool), out=out, **more).count
            if what not in ANSWERS:
                return export(ledger, what, out=out, **options)
            given = {name for name, value in options.items() if value} - {"format"}
            if given or options.get("format", "jsonl") != "jsonl":
                raise ConfigError(f"{what} has one form; leave all but --out away")
            return export_answers(ledger, what, out=out)


def load_config(
    source: Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    purpose: Purpose = "run",
) -> Config:
    """Read a YAML file or ``preset:NAME``. Raises ConfigError that lists every fault.

    ``purpose`` is "run", "mix", "judge", "synthesise" or "search": what the configuration must
    be complete for.
    """
    also = (content_faults,) if purpose in ("run", "search") else ()
    return _config.load(source, overrides, purpose=purpose, also=also)


def default_folder(source: Path | str, config: Config) -> Path:
    """``output`` of the configuration, or ``runs/`` and the name of its file or preset."""
    if config.output:
        return Path(config.output)
    name = str(source).removeprefix("preset:")
    return Path("runs") / Path(name).stem


def list_methods() -> list[dict[str, str]]:
    """What ``method`` of a configuration may be: ``name``, ``kind``, ``title``, ``paper`` of each.

    >>> list_methods()[0]["name"]
    'sparta'
    """
    return [
        {"name": name, "kind": method.kind, "title": method.title, "paper": method.paper}
        for name, method in METHODS.items()
    ]


def run(
    config: Config | Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Run:
    """Start or continue a run. ``config`` is a file, ``preset:NAME``, or a loaded Config.

    ``overrides`` are ``key.path=value`` texts or a mapping, as on the command line; a Config that
    is loaded already has them. ``workshop`` brings one's own engines.
    """
    loaded = _loaded(config, overrides, "run")
    source = "run" if isinstance(config, Config) else config
    folder = Path(out) if out else default_folder(source, loaded)
    return Run(align(loaded, folder, progress=progress, workshop=workshop))


def open_run(folder: Path | str) -> Run:
    """Open a run that exists, finished or not."""
    return Run(folder)


# Without a run -----------------------------------------------------------------------------------


def mix(
    config: Config | Path | str,
    prompts: Sequence[str | Sequence[Mapping[str, str]]],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> list[dict[str, Any]]:
    """The mixture's answers, in order: ``response`` (None without an answer), ``reason``,
    ``proposals``.

    A prompt is a text, or a conversation as :func:`phalanx.turns.read_turns` reads it.
    ``line`` is its number, from 1.
    With ``out``, a folder, the same call goes on where it was stopped.
    """
    loaded = _loaded(config, overrides, "mix")
    if isinstance(prompts, str):
        raise TypeError("prompts is a list of prompts, not one text")
    rows = tuple(instruction_of(prompt, number) for number, prompt in enumerate(prompts, start=1))
    with folder_or_scratch(out) as folder:
        given = InstructionSet("prompts", rows, lines=tuple(range(1, len(rows) + 1)))
        made = mix_file(loaded, given, folder, progress=progress, workshop=workshop)
    return list(made.rows)


def judge(
    config: Config | Path | str,
    rows: Path | str | Sequence[Mapping[str, Any]],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Verdicts:
    """Judge pairs of responses by ``judge.protocol``: ``rows`` of the result has a dict for each.

    ``rows`` is a file, or a list of dicts with ``instruction`` and two responses: ``response_a``
    and ``response_b``, ``left`` and ``right``, or ``chosen`` and ``rejected``; with the last,
    ``agreement`` says how often the judges agree.
    """
    loaded = _loaded(config, overrides, "judge")
    if isinstance(rows, str | Path):
        cases = read_cases(str(rows), loaded)
    else:
        given = tuple(Row(number, dict(row)) for number, row in enumerate(rows, start=1))
        cases = cases_of(Table("rows", given), loaded)
    with folder_or_scratch(out) as folder:
        return judge_file(loaded, cases, folder, progress=progress, workshop=workshop)


def measure(
    source: Path | str | None = None,
    tasks: Sequence[str] = (),
    members: Sequence[str] = (),
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    data: Path | str | None = None,
    limit: int | None = None,
    against: str = "",
    out: Path | str,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Run:
    """Measure members, models and collectives on tasks, as ``phalanx eval`` does.

    ``source`` is a run's folder, a configuration or preset, or None; the words of ``tasks`` and
    ``members`` are those of the command. ``out`` is the evaluation's folder: the same call goes on
    there, one with more members or tasks adds to it. The result reads it: ``.rows("evaluations")``
    has the items, ``.facts().measured`` the scores and comparisons.
    """
    wish = wanted(
        None if source is None else str(source),
        overrides,
        tasks=tasks,
        members=members,
        data=data,
        limit=limit,
        against=against,
    )
    return Run(measure_subjects(wish, out, progress=progress, workshop=workshop).folder)


def judge_bench(
    source: Path | str,
    data: Path | str,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    format: str = "auto",
    members: Sequence[str] = (),
    iterations: Sequence[int] | None = None,
    limit: int | None = None,
    per_item: int = 1,
    out: Path | str,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
) -> Run:
    """Test judges on pairs of which the better response is known, as ``phalanx judge-bench`` does.

    ``source`` is a configuration, a file with a pool, or a run's folder; ``data`` a file of pairs,
    or a folder with answers. ``.facts().tested`` of the result has every number of the table.
    """
    made = wanted_bench(
        source, data, overrides, format=format, members=members, iterations=iterations,
        limit=limit, per_item=per_item,
    )  # fmt: skip
    folder = test_judges(
        made.bench, made.file, out, writers=made.writers, flags=made.flags, progress=progress,
        workshop=workshop,
    )  # fmt: skip
    return Run(folder)


def synthesise(
    config: Config | Path | str,
    member: str,
    count: int,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    out: Path | str | None = None,
    progress: Progress | None = None,
    workshop: Workshop | None = None,
    **wish: Any,
) -> Synthesis:
    """Let a member invent instructions (Magpie); ``rows`` of the result are what was kept.

    Further arguments are those of :class:`phalanx.synthesis.Wish`: ``system``, ``rater``, ...
    """
    loaded = _loaded(config, overrides, "synthesise")
    with folder_or_scratch(out) as folder:
        wanted = Wish(member, count, **wish)
        return synthesise_to(loaded, folder, wanted, progress=progress, workshop=workshop)


def compare(
    file: Path | str,
    overrides: Sequence[str] = (),
    *,
    out: Path | str | None = None,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    jobs: int = 1,
    table: bool = False,
    progress: Progress | None = None,
) -> Compared:
    """Run the methods of a comparison's file on equal terms; ``findings`` of the result has every
    number of the table, ``failed`` the arms that came to no end.

    ``overrides`` change what all methods share; ``seeds`` and ``only`` what is run of the file (the
    table has whatever else of it has begun in ``out``); ``jobs`` is how many runs go on at a time;
    ``table`` runs nothing. Raises ConfigError with every fault of the base or of every method,
    LedgerError where ``out`` (default: runs/NAME-compare, by the file's name) has work of other
    settings, or nothing for a ``table``, and Interrupted on Ctrl-C.
    """
    from phalanx.comparing.loading import read_comparison
    from phalanx.comparing.work import begun_in, compare_to

    path = Path(file)
    folder = Path("runs") / f"{path.stem}-compare" if out is None else Path(out)
    begun = {name for names in begun_in(folder).values() for name in names}
    return compare_to(
        read_comparison(path, overrides, seeds=seeds, only=only),
        folder,
        known=read_comparison(path, overrides, only=only, also=begun) if only else None,
        title=path.stem,
        jobs=jobs,
        table=table,
        progress=progress or Silent(),
    )


def ablate(
    method: str,
    config: Path | str,
    overrides: Sequence[str] = (),
    *,
    out: Path | str | None = None,
    seeds: Sequence[int] = (),
    groups: Sequence[str] = (),
    only: Sequence[str] = (),
    jobs: int = 1,
    table: bool = False,
    progress: Progress | None = None,
) -> Compared:
    """Run a method ("sparta") whole, and without each of the parts that the configuration has.

    ``groups`` and ``only`` choose parts (default: all), ``seeds`` is by default that of the
    configuration and the next. Else as :func:`compare`; ``out`` is by default the configuration's
    folder with ``-ablate`` behind it.
    """
    from phalanx.comparing.ablating import ablate_to, refuse_others

    refuse_others(method)
    folder = Path("runs") / f"{Path(str(config).removeprefix('preset:')).stem}-ablate"
    return ablate_to(
        str(config),
        overrides,
        folder if out is None else Path(out),
        title=folder.name,
        seeds=seeds,
        groups=groups,
        only=only,
        jobs=jobs,
        table=table,
        progress=progress or Silent(),
    )


def reproduce(
    paper: str,
    out: Path | str | None = None,
    overrides: Sequence[str] = (),
    *,
    runs: Path | str | None = None,
    data: Path | str | None = None,
    pool: Path | str | None = None,
    table: str = "",
    columns: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    machine: str | None = None,
) -> Reproduction:
    """Write what would reproduce the tables of ``sparta`` or ``moaa``, and fill them from runs.

    ``out`` (default: ``reproduce/`` and the paper) gets ``configs/``, ``commands.sh``, ``plan.md``
    and ``README.md`` with the published figures beside cells; ``cells`` of the result has them,
    filled from the ledgers in ``runs`` (default: ``out/runs``). ``data`` is a folder with rows,
    ``pool`` a file that replaces the paper's pool, ``overrides`` are ``key.path=value`` texts for
    every configuration. No model is loaded. Raises ConfigError with every fault.
    """
    wish = WishOfPaper(
        paper=paper,
        table=table,
        columns=tuple(columns),
        data=None if data is None else Path(data),
        pool=None if pool is None else Path(pool),
        overrides=tuple(overrides),
        seeds=tuple(seeds),
        machine=machine,
    )
    folder = Path("reproduce") / paper if out is None else Path(out)
    return reproduce_to(wish, folder, None if runs is None else Path(runs))


def _loaded(
    config: Config | Path | str, overrides: Sequence[str] | Mapping[str, Any], purpose: Purpose
) -> Config:
    if isinstance(config, Config):
        if overrides:
            raise TypeError(
                "overrides change a configuration while it is loaded, and this one is; give them "
                "to load_config, or name the file or preset here"
            )
        return config
    return load_config(config, overrides, purpose=purpose)


@contextmanager
def folder_or_scratch(out: Path | str | None) -> Iterator[Path]:
    """The folder that was named, or one that is gone afterwards."""
    if out is not None:
        yield Path(out)
        return
    with TemporaryDirectory(prefix="phalanx-") as scratch:
        yield Path(scratch)
