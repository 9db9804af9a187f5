"""What a report says first and last: its headline, the finding, and how to read it."""

from __future__ import annotations

from phalanx.report import words
from phalanx.report.measured_page import measured_headline, measured_notes
from phalanx.report.moaa_page import moaa_finding, moaa_headline, moaa_notes
from phalanx.report.records import Change, RunFacts
from phalanx.report.rivals_views import rival_headline, rival_notes
from phalanx.report.servers import repeatability


def subtitle(facts: RunFacts) -> str:
    """Method or command, who, how long, seed, start."""
    kind = "Mixture of Agents Alignment" if facts.moaa else f"{facts.method.capitalize()} alignment"
    if facts.rival:
        kind = facts.method.replace("_", " ").capitalize()
    rounds = words.plural(facts.progress.num_iterations, "stage" if facts.moaa else "iteration")
    parts = [
        f"phalanx {facts.command}" if facts.command else kind,
        words.who(facts),
        rounds if facts.progress.num_iterations and not facts.command else "",
        f"seed {facts.seed}",
        f"started {facts.created_at[:16].replace('T', ' ')} UTC" if facts.created_at else "",
    ]
    return " · ".join(part for part in parts if part)


def state_note(facts: RunFacts) -> str:
    """Why what is shown is not the whole run; "" where it is."""
    state = facts.progress
    if state.finished:
        return ""
    place = words.words_of_place(state)
    if not state.num_iterations and not facts.rival:
        return "This is not finished. The command that started it goes on from here."
    if state.stop_reason:
        return f"This run stopped in {place}: {state.stop_reason}"
    if state.stage:
        place += f" ({state.stage})"
    doing = words.doing(state.phase)
    return f"This run is not finished: {place}, {doing}. The numbers below are those so far."


def headline(facts: RunFacts) -> list[dict[str, str]]:
    """At most four numbers; those that exist."""
    if facts.moaa:
        return moaa_headline(facts, facts.moaa)
    if facts.rival:
        return [*_changes(facts), *rival_headline(facts, facts.rival)]
    if facts.command:
        return _command_headline(facts)
    account = facts.accounting
    return [
        *_changes(facts),
        {
            "name": "Preference pairs kept",
            "value": f"{account.pairs_kept:,}",
            "note": f"of {words.plural(account.num_duels, 'duel')}; "
            f"{account.judgments_asked - account.judgments_readable:,} of "
            f"{words.plural(account.judgments_asked, 'judgment')} unreadable"
            f"{'' if facts.progress.finished else ', in finished iterations'}",
        },
    ]


def _changes(facts: RunFacts) -> list[dict[str, str]]:
    """Before and after: of the members, of their vote, of the best of them."""
    measured = facts.evaluation
    items: list[dict[str, str]] = []
    mean = measured.change()
    together = next((c for c in measured.collective if not c.domain), None)
    if len(measured.iterations) > 1:
        for name, change in (("Mean of the members", mean), ("All members voting", together)):
            if change:
                items.append(_headline_change(name, change))
        initial, aligned = measured.best_initial, measured.best_aligned
        if initial and aligned and measured.aligned_over_initial:
            change = measured.aligned_over_initial
            items.append(
                {
                    "name": "Best single member",
                    "value": f"{words.percent(initial.test)} → {words.percent(aligned.test)} %",
                    "note": f"{initial.member} → {aligned.member}; "
                    f"{words.points(change.difference)} points "
                    f"[{words.points_span(change.interval, 0)}]",
                }
            )
    return items


def _command_headline(facts: RunFacts) -> list[dict[str, str]]:
    phases = facts.accounting.phases
    failed = sum(sum(phase.failed.values()) for phase in phases)
    written = sum(phase.num_completion_tokens for phase in phases)
    asked = {
        "name": "Requests",
        "value": f"{sum(phase.asked for phase in phases):,}",
        "note": f"{failed:,} failed; {written:,} tokens written",
    }
    account = facts.accounting
    if facts.measured:
        return [*measured_headline(facts.measured), asked]
    if not account.num_duels:
        return [asked]
    judged = {
        "name": "Pairs judged",
        "value": f"{account.num_duels:,}",
        "note": words.counted(account.outcomes, words.STATUS_WORDS),
    }
    return [judged, asked]


def _headline_change(name: str, change: Change) -> dict[str, str]:
    return {
        "name": name,
        "value": f"{words.percent(change.before)} → {words.percent(change.after)} %",
        "note": f"{words.points(change.difference)} points "
        f"[{words.points_span(change.interval, 0)}], {change.n} items",
    }


def finding(facts: RunFacts) -> str:
    """The title of the accuracy section: a count, not a claim."""
    if facts.moaa:
        return moaa_finding(facts.moaa)
    if facts.rival and facts.rival.levels:
        return "Result"
    measured = facts.evaluation
    changes = [c for d in measured.domains if (c := measured.change("", d))]
    if len(measured.iterations) < 2 or not changes:
        return "Accuracy"
    up, down = (sum(c.direction == sign for c in changes) for sign in (1, -1))
    same = len(changes) - up - down
    parts = [f"higher in {up}", f"lower in {down}", f"no clear change in {same}"]
    shown = [part for part, count in zip(parts, (up, down, same), strict=True) if count]
    return f"Mean accuracy: {', '.join(shown)} of {words.plural(len(changes), 'domain')}"


def verdict(facts: RunFacts) -> str:
    """One sentence for the top of a summary: how far it came, and what was found."""
    state = facts.progress
    if state.finished:
        begin = "Finished"
    elif state.stop_reason:
        begin = f"Stopped: {state.stop_reason.rstrip('.')}"
    else:
        begin = f"Not finished ({words.words_of_place(state)}, {words.doing(state.phase)})"
    found = finding(facts)
    return f"{begin}." if found in ("Accuracy", "Result") else f"{begin}. {found}."


def notes(facts: RunFacts) -> list[str]:
    """What the numbers do and do not say."""
    sums = (one.lines()[0] for one in facts.overlaps)
    return [*(f"{line[:1].upper()}{line[1:]}." for line in sums), *_notes(facts)]


def _notes(facts: RunFacts) -> list[str]:
    if facts.moaa:
        return moaa_notes(facts, facts.moaa)
    if facts.rival:
        return rival_notes(facts, facts.rival)
    if facts.command:
        lines = measured_notes(facts.measured, facts.seed) if facts.measured else []
        return [*lines, line] if (line := repeatability(facts)) else lines
    measured = facts.evaluation
    lines = []
    if facts.accounting.num_duels and not facts.accounting.pairs_kept:
        lines.append(f"{words.NO_PAIRS}.")
    if measured.num_test:
        lines += [
            f"n: {measured.num_test} test items and {measured.num_dev} dev items over "
            f"{words.plural(len(measured.domains), 'domain')}. Every member answers every item, "
            "greedily.",
            "Intervals are 95 %. Single cells use Wilson's, their changes Tango's; means of the "
            "members resample items; means of domains are made of the domains' intervals. They say "
            "what another draw of items could change. They do not cover another seed, another "
            "pool, or sampling noise in answering and judging.",
            "“Higher” means that the paired interval excludes 0. With many cells, about one in "
            "twenty excludes 0 by chance alone; the means are the safer reading.",
        ]
        failed = measured.unreadable or {}
        if any(failed.values()):
            counts = ", ".join(f"{count:,} {words.when(n)}" for n, count in failed.items())
            lines.append(
                f"Responses without a readable answer count as wrong: {counts} (dev and test)."
            )
    if remote := repeatability(facts):
        lines.append(remote)
    lines.append(
        f"This is one run with one seed ({facts.seed}). Before concluding anything, repeat it with "
        "other seeds and beside the random-winner control (train.label_noise=0.5)."
    )
    lines.append(
        "No label was used for the alignment: reference answers, where instructions have them, "
        "serve this report alone."
    )
    return lines
