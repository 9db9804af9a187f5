"""The summary and the status of a run for a terminal, a log or a pipe; 80 columns suffice."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from phalanx.report.columns import Columns
from phalanx.report.moaa_words import Section, TableView
from phalanx.report.pace_views import go_on, times
from phalanx.report.records import Change, RunFacts
from phalanx.report.sections import own_sections
from phalanx.report.servers import endpoint_lines
from phalanx.report.trials import trials_table
from phalanx.report.views import collective_notes, paired_tests
from phalanx.report.warnings import warnings
from phalanx.report.watch_views import pace_parts, watch_parts
from phalanx.report.words import (
    AGREES,
    DROP_WORDS,
    NO_PAIRS,
    OWED,
    STATUS_WORDS,
    choice_line,
    counted,
    doing,
    duration,
    flipped,
    harmless,
    percent,
    plural,
    points,
    points_span,
    run_name,
    seconds_by_phase,
    share_of,
    span,
    total_seconds,
    when,
    who,
    words_of_place,
)

_COLUMNS = 5  # member x domain columns that fit 80 characters
# One sign for one sign, so that columns keep their width.
_PLAIN = str.maketrans("▲▼−→±–×“”‘’…", "^v-> -x\"\"''~")


def summary(facts: RunFacts) -> RenderableType:
    """Before and after, reputations, accounting, time, and what to look at next."""
    return _Page(lambda: _summary(facts))


def status(facts: RunFacts) -> RenderableType:
    """Where a run is: iteration, phase, what is owed, and what has come out so far."""
    return _Page(lambda: _status(facts))


def watched(facts: RunFacts) -> RenderableType:
    """The same in few lines, for a window that is looked at while the run goes on."""
    return _Page(lambda: watch_parts(facts))


def sections_page(title: str, found: Sequence[Section]) -> RenderableType:
    """Sections of words and tables under a title, but for details."""
    return _Page(lambda: chain([Text(title, style="bold")], _shown(found)))


@dataclass
class _Page:
    parts: Callable[[], Iterable[RenderableType]]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        for part in self.parts():
            for segment in console.render(part, options):
                # Names of domains and files may have any letter: none of them ends the summary,
                # nor steers the terminal.
                plain = harmless(segment.text)
                if options.ascii_only:
                    plain = plain.translate(_PLAIN).encode("ascii", "replace").decode("ascii")
                yield Segment(plain, segment.style, segment.control)


def _summary(facts: RunFacts) -> Iterator[RenderableType]:
    yield _heading(facts)
    yield from (Text(line, style="bold") for line in warnings(facts))
    if not facts.progress.finished:
        yield from _state_lines(facts)
    if facts.found:
        yield Text("")
        yield trials_table(facts.found)
    else:
        if not (facts.moaa or facts.command or (facts.rival and facts.rival.levels)):
            yield from _evaluation(facts)
        yield from _sections(facts)
        yield from _reputations(facts)
    yield from _accounting(facts)
    yield from _endpoints(facts)
    yield from _times(facts)
    yield from _next(facts)


def _status(facts: RunFacts) -> Iterator[RenderableType]:
    yield _heading(facts)
    yield from _state_lines(facts)
    yield from pace_parts(facts)
    if facts.found:
        yield Text("")
        yield trials_table(facts.found)
    else:
        yield from _sections(facts, only=("stages", "judges", "scores", "made", "result", "people"))
        yield from _reputations(facts)
    yield from _accounting(facts)
    yield from _endpoints(facts)
    yield from _times(facts)


def _sections(facts: RunFacts, only: Sequence[str] = ()) -> Iterator[RenderableType]:
    """What methods but duels have to show, in their own words and tables."""
    found = own_sections(facts)
    yield from _shown([section for section in found if not only or section.id in only])


def _shown(found: Sequence[Section]) -> Iterator[RenderableType]:
    for section in found:
        views = [view for view in section.tables if not view.detail]
        if not (views or section.lines):
            continue
        yield _section(section.title)
        yield from (_indent(Text(line)) for line in section.lines)
        for number, view in enumerate(views):
            if number or section.lines:
                yield Text("")
            yield _indent(Text(view.title, style="italic"))
            yield _indent(_view(view))
            if view.note:
                yield _indent(Text(view.note, style="dim"))


def _view(view: TableView) -> Columns:
    table = Columns(view.headers, view.left, wrap=True)
    for row in view.rows:
        table.add_row(*row)
    return table


def _heading(facts: RunFacts) -> Text:
    count = who(facts)
    if facts.moaa:
        stages = plural(facts.progress.num_iterations, "stage")
        made = plural(facts.accounting.demonstrations_kept, "demonstration")
        pairs = plural(facts.accounting.pairs_kept, "pair")
        return Text(f"{run_name(facts)}: moaa, {count}, {stages}, {made}, {pairs}", style="bold")
    if facts.command:
        asked = plural(sum(phase.asked for phase in facts.accounting.phases), "request")
        words = f"phalanx {facts.command}, {count}, {asked}"
        return Text(f"{run_name(facts)}: {words}", style="bold")
    rounds = plural(facts.progress.num_iterations, "iteration")
    if facts.rival:
        return Text(f"{run_name(facts)}: {facts.method}, {count}{_learned(facts, rounds)}",
                    style="bold")  # fmt: skip
    duels = plural(facts.accounting.num_duels, "duel")
    return Text(f"{run_name(facts)}: {facts.method}, {count}, {rounds}, {duels}", style="bold")


def _learned(facts: RunFacts, rounds: str) -> str:
    """What a method that trains has made, by kind; nothing of one that answers."""
    account = facts.accounting
    if not facts.trains:
        return ""
    made = [(account.num_demonstrations, account.demonstrations_kept, "demonstration"),
            (account.num_pairs, account.pairs_kept, "pair")]  # fmt: skip
    return "".join([f", {rounds}", *(f", {plural(kept, name)}" for n, kept, name in made if n)])


def _state_lines(facts: RunFacts) -> Iterator[Text]:
    state = facts.progress
    place = words_of_place(state)
    if state.stage:
        place += f" ({state.stage})"
    if state.finished:
        where = f", {place}" if state.num_iterations else ""
        yield Text("Finished" if facts.command else f"Finished {state.finished}{where}")
    elif state.stop_reason:
        yield Text(f"Stopped in {place}: {state.stop_reason}")
    elif not state.num_iterations and not facts.rival:
        yield Text("Not finished: the command that started it goes on from here")
    elif state.phase == "closing":
        yield Text("Everything is recorded; the same command closes the run")
    else:
        shared = bool(state.stage) and state.unit == "requests"
        bound = "at most " if state.phase == "judge" or shared else ""
        done = f"{state.asked - state.owed:,} of {bound}{state.asked:,} {state.unit} done"
        if not state.known:
            done = f"{state.asked:,} {state.unit} done so far"
        yield Text(f"Not finished: {place}, {doing(state.phase)}, {done}")
        if state.last_error:
            yield Text(f"The last start ended{times(facts)}: {state.last_error}")
        if facts.pace.holder is None:
            yield Text(go_on(state.last_error))


def _section(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _arrow(change: Change) -> str:
    return {1: "▲", -1: "▼", 0: " "}[change.direction]


def _change_table(first: str, changes: Sequence[tuple[str, Change]]) -> Columns:
    table = Columns((first, "before", "95 %", "after", "95 %", "change", "95 %", ""))
    for name, change in changes:
        table.add_row(
            name,
            percent(change.before),
            span(change.before_interval),
            percent(change.after),
            span(change.after_interval),
            points(change.difference),
            points_span(change.interval, 0),
            _arrow(change),
        )
    return table


def _evaluation(facts: RunFacts) -> Iterator[RenderableType]:
    measured = facts.evaluation
    yield _section("Evaluation")
    if measured.note:
        yield _indent(Text(measured.note[0].upper() + measured.note[1:]))
    if len(measured.iterations) < 2 or not measured.changes:
        return
    yield _indent(
        Text(
            f"% right on {measured.num_test} test items, before and {when(measured.last)}; "
            "▲▼ where the paired interval excludes 0"
        )
    )
    named = [(domain or "all domains", measured.change("", domain))
             for domain in (*measured.domains, "")]  # fmt: skip
    yield _indent(_change_table("mean of members", [(n, c) for n, c in named if c]))
    yield Text("")
    members = [(c.member, c) for c in measured.changes if c.member and not c.domain]
    members += [(name, changes[""]) for name, changes in measured.together.items()]
    yield _indent(_change_table("all domains", members))
    yield from (_indent(Text(note, style="dim")) for note in collective_notes(measured))
    for start in range(0, len(measured.domains), _COLUMNS - 1):
        yield Text("")
        yield _indent(_matrix(facts, measured.domains[start : start + _COLUMNS - 1]))
    if tests := paired_tests(measured):
        yield Text("")
        yield _indent(_view(tests))
        yield _indent(Text(tests.note, style="dim"))
    yield Text("")
    yield from _best(facts)


def _matrix(facts: RunFacts, domains: Sequence[str]) -> Columns:
    """Members down, domains across; every cell's interval is in the report."""
    measured = facts.evaluation
    table = Columns(("member", *domains))
    for member in [c.member for c in measured.changes if c.member and not c.domain]:
        cells = []
        for domain in domains:
            change = measured.change(member, domain)
            cells.append(
                f"{percent(change.before, 0)}→{percent(change.after, 0)} {_arrow(change)}"
                if change
                else "–"
            )
        table.add_row(member, *cells)
    return table


def _best(facts: RunFacts) -> Iterator[RenderableType]:
    """Chosen on the dev split, so that the test numbers are not those of the luckiest."""
    measured = facts.evaluation
    lines = [("best initial", measured.best_initial), ("best aligned", measured.best_aligned)]
    for name, choice in lines:
        if choice:
            yield _indent(Text(f"{name:<13} {choice_line(choice)}"))
    change = measured.aligned_over_initial
    if change:
        yield _indent(
            Text(
                f"{'difference':<13} {points(change.difference)} points "
                f"[{points_span(change.interval)}] {_arrow(change)}"
            )
        )


def _reputations(facts: RunFacts) -> Iterator[RenderableType]:
    if not facts.reputations:
        return
    judges = {judge.member: judge for judge in facts.judges}
    values = [line.value for line in facts.reputations]
    places = 1 if max(values) - min(values) >= 1 else 3  # enough that members differ
    yield _section("Reputations")
    table = Columns(
        ("member", "start", "now", "deviation", "won", "lost", "tied", "agrees as judge")
    )
    for line in sorted(facts.reputations, key=lambda line: -line.value):
        judge = judges.get(line.member)
        agrees = judge.agreement if judge else None
        table.add_row(
            line.member,
            f"{line.start:.{places}f}",
            f"{line.value:.{places}f}",
            f"{line.deviation:.2f}",
            f"{line.wins:,}",
            f"{line.losses:,}",
            f"{line.ties:,}",
            "–" if agrees is None else f"{percent(agrees, 0)} %",
        )
    yield _indent(table)
    if any(judge.agreement is not None for judge in facts.judges):
        yield _indent(Text(AGREES, style="dim"))


def _endpoints(facts: RunFacts) -> Iterator[RenderableType]:
    if lines := endpoint_lines(facts):
        yield _section("Endpoints")
        yield from (_indent(Text(line)) for line in lines)


def _accounting(facts: RunFacts) -> Iterator[RenderableType]:
    account = facts.accounting
    yield _section("Accounting")
    yield from _phases(facts)
    for line in (line for one in facts.overlaps for line in one.lines()):
        yield _indent(Text(line))
    if account.num_demonstrations:
        lost = account.demonstrations_dropped
        yield _indent(
            Text(
                f"{plural(account.num_demonstrations, 'demonstration')}: "
                f"{account.demonstrations_kept:,} kept, {_dropped(lost)}"
            )
        )
    if not account.num_duels and not account.num_pairs:
        if not account.num_demonstrations and (words := _nothing_yet(facts)):
            yield _indent(Text(words))
        return
    if account.num_duels:
        yield from _judged(facts)
    if not facts.command and account.num_pairs:
        kept = plural(account.pairs_kept, "preference pair")
        yield _indent(Text(f"{kept} kept, {_dropped(account.dropped)}"))
    if not account.pairs_kept and account.num_pairs:
        yield _indent(Text(NO_PAIRS, style="bold"))
    if account.judgments_flipped:
        yield _indent(Text(flipped(facts.config), style="dim"))
    if facts.label_accuracy:
        shares = ", ".join(
            f"{percent(share, 0)} % of {count:,} (iteration {number})"
            for number, (share, count) in facts.label_accuracy.items()
        )
        yield _indent(Text(f"the right one was chosen, where exactly one is right: {shares}"))


def _judged(facts: RunFacts) -> Iterator[RenderableType]:
    """Duels and judgments; of most methods responses of one learner met."""
    account = facts.accounting
    outcomes = counted(account.outcomes, STATUS_WORDS)
    unread = account.judgments_asked - account.judgments_readable
    why = f" ({counted(account.unreadable)})" if unread else ""
    turned = f", {account.judgments_flipped:,} flipped" if account.judgments_flipped else ""
    what = "comparison" if facts.rival else "duel"
    under_way = facts.method == "sparta" and not facts.progress.finished
    where = " of finished iterations" if under_way else ""
    yield _indent(Text(f"{plural(account.num_duels, what)}{where}: {outcomes}"))
    yield _indent(
        Text(
            f"{plural(account.judgments_asked, 'judgment')}{where}: {unread:,} unreadable, "
            f"{share_of(unread, account.judgments_asked)}{why}{turned}"
        )
    )


def _nothing_yet(facts: RunFacts) -> str:
    if facts.command or not facts.trains:
        return ""
    if facts.rival:
        return "no iteration has been recorded yet"
    if facts.moaa:
        return "no stage has been recorded yet"
    return "no iteration has finished its duels yet"


def _dropped(lost: Mapping[str, int]) -> str:
    if not any(lost.values()):
        return "none dropped"
    return f"{sum(lost.values()):,} dropped: {counted(lost, DROP_WORDS)}"


def _phases(facts: RunFacts) -> Iterator[RenderableType]:
    """Requests by phase over all iterations; the page has every iteration."""
    if not facts.accounting.phases:
        done = facts.progress.finished
        yield _indent(Text("nobody was asked anything" if done else "nothing has been asked yet"))
        return
    table = Columns(("requests", "asked", "answered", "truncated", "failed", "owed"))
    failures: Counter[str] = Counter()
    for name in dict.fromkeys(phase.phase for phase in facts.accounting.phases):
        rows = [phase for phase in facts.accounting.phases if phase.phase == name]
        for row in rows:
            failures.update(row.failed)
        numbers = (
            sum(row.asked for row in rows),
            sum(row.answered for row in rows),
            sum(row.truncated for row in rows),
            sum(sum(row.failed.values()) for row in rows),
            sum(row.owed for row in rows),
        )
        table.add_row(name, *(f"{number:,}" for number in numbers))
    yield _indent(table)
    if any(phase.owed for phase in facts.accounting.phases):
        yield _indent(Text(OWED, style="dim"))
    if failures:
        yield _indent(Text(f"failed: {counted(dict(failures.most_common()))}"))


def _times(facts: RunFacts) -> Iterator[RenderableType]:
    if not facts.times:
        return
    parts = ", ".join(f"{p} {duration(s)}" for p, s in seconds_by_phase(facts).items())
    yield _section(f"Time: {duration(total_seconds(facts))}")
    yield _indent(Text(parts))


def _next(facts: RunFacts) -> Iterator[RenderableType]:
    folder = shlex.quote(facts.folder)
    yield _section("Next")
    lines = [f"phalanx report {folder}"]
    if facts.accounting.demonstrations_kept:
        lines.append(f"phalanx export {folder} demonstrations --out demonstrations.jsonl")
    if facts.measured and facts.measured.subjects:
        lines.append(f"phalanx export {folder} evaluations --out evaluations.jsonl")
    if facts.accounting.pairs_kept:
        lines.append(f"phalanx export {folder} preferences --out preferences.jsonl")
    best = None if facts.moaa else facts.evaluation.best_aligned
    if best and any(
        t.num_examples and (t.member, t.iteration) == (best.member, best.iteration)
        for t in facts.trainings
    ):
        lines.append(f"adapters: {facts.folder}/adapters/iteration-{best.iteration}/{best.member}")
    elif learned := [t.iteration for t in facts.trainings if t.num_examples]:
        last = learned[-1]
        lines.append(f"adapters: {facts.folder}/adapters/iteration-{last}/")
    for line in lines:  # whole, so that what is copied is one command
        yield Text(f"  {line}", no_wrap=True, overflow="ignore")
