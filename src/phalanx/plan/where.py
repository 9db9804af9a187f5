"""The placement in words: where every member goes in every phase, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from phalanx.plan.endpoints import EndpointPlan, amount
from phalanx.plan.machines import GB, in_words
from phalanx.plan.make import Plan
from phalanx.plan.memory import BasePlan
from phalanx.plan.placement import Held, Wave
from phalanx.plan.units import USABLE
from phalanx.plan.ways import gigabytes, parts

DOING = {
    "recruit": "Recruit",
    "serve": "Answer and judge",
    "tune": "Learn demonstrations",
    "train": "Train",
}


def where(plan: Plan) -> Text:
    """The device, the bases, and the waves of each phase; empty where no weights are here."""
    if not plan.placement.waves and not plan.placement.scripted:
        return Text("No weights here: no member answers or learns on this machine.")
    text = Text("Where it goes, estimated", style="bold")
    lines = [_units(plan), *(_base(base) for base in plan.bases)]
    for phase, words in DOING.items():
        lines += _phase(plan, plan.placement.of(phase), words)
    if plan.placement.scripted:
        lines.append(f"Scripted, no weights: {', '.join(plan.placement.scripted)}")
    text.append("\n" + "\n".join(line for line in lines if line), style="not bold")
    return text


def _units(plan: Plan) -> str:
    units = plan.placement.units
    if not plan.placement.waves:
        return ""
    device = f"On {units.machine.words}" if units.known else "On a Ray cluster not known here"
    if units.card is not None and units.card.known and not units.machine.here:
        each = " each" if units.machine.all_gpus > 1 else ""
        device += f" ({units.card.memory / GB:.0f} GB{each})"
    if units.room is not None:
        each = "a worker" if units.count > 1 else "members"
        kind = "" if units.gpu else " of main memory"
        left = f"{USABLE:.0%} is reckoned with" if units.gpu else f"{USABLE:.0%}, less the process"
        device += f": {gigabytes(units.room)}{kind} for {each} ({left})"
    if units.count > 1:
        kind = "Ray workers" if units.kind == "ray" else "worker processes"
        share = f" with {units.share:g} GPU each" if units.gpu else ""
        held = "every base" if plan.placement.keeps_all else "one base at a time"
        device += f"; {units.count} {kind} side by side{share}, {held} in each"
    return f"{device}."


def _base(base: BasePlan) -> str:
    if base.parameters == 0:
        return ""
    text = f"{base.base}: {_parameters(base)}, {in_words(len(base.members), 'member')}"
    return f"{text} (size {base.how})." if base.guessed else f"{text}."


def _parameters(base: BasePlan) -> str:
    if base.parameters is None:
        return "size unknown"
    mark = "about " if base.guessed else ""
    if base.parameters >= 1e9:
        return f"{mark}{base.parameters / 1e9:.2f}B parameters"
    return f"{mark}{base.parameters / 1e6:.1f}M parameters"


def _phase(plan: Plan, waves: Sequence[Wave], words: str) -> list[str]:
    if not waves:
        return []
    lines = [f"{words}, {_how(plan, waves)}:"]
    for number, wave in enumerate(waves, start=1):
        mark = f"wave {number}: " if len(waves) > 1 else ""
        lines += [f"  {mark}{line}" for line in _wave(plan, wave)]
    return lines


def _how(plan: Plan, waves: Sequence[Wave]) -> str:
    count = plan.placement.units.count
    if any(wave.server for wave in waves):
        own = [wave for wave in waves if not wave.server]
        return "a vLLM server" + (" beside this process" if own else "")
    one = len(waves) == 1 and len(waves[0].held) == 1
    if count > 1:
        return f"{count} at a time"
    return "one base, its members in turn" if one else (
        "all bases at once" if len(waves) == 1 else f"{len(waves)} bases in turn"
    )  # fmt: skip


def _wave(plan: Plan, wave: Wave) -> list[str]:
    who = "; ".join(f"{held.base.base} with {', '.join(held.members)}" for held in wave.held)
    if any(held.base.parameters is None for held in wave.held):
        return [f"{who}: size unknown"]
    each = " in each worker" if plan.placement.units.count > 1 and not wave.server else ""
    what = "the base that answers" if wave.scores else "vLLM"
    beside = f", beside {gigabytes(wave.beside)} of {what}" if wave.beside else ""
    line = f"{who}: {gigabytes(wave.needed)}{each} ({parts(wave)}){beside}"
    return [line, *_short(wave.held, wave)]


def _short(held: Sequence[Held], wave: Wave) -> list[str]:
    return [
        f"  batches of {one.wanted} do not fit and are halved to {one.rows}"
        for one in held
        if one.rows < one.wanted and not wave.server
    ]


def behind(plan: Plan) -> list[Text]:
    """What endpoints will be asked, and how that compares with the budget."""
    if not plan.endpoints:
        return []
    text = Text("Endpoints, the whole run, as long as responses may be", style="bold")
    lines = [_endpoint(endpoint) for endpoint in plan.endpoints]
    text.append("\n" + "\n".join([*lines, *plan.budget]), style="not bold")
    return [Text(""), text]


def _endpoint(endpoint: EndpointPlan) -> str:
    money = "no price set" if endpoint.money is None else f"money {amount(endpoint.money)}"
    rate = ""
    if endpoint.minutes is not None:
        rate = f"; its rates allow this in {endpoint.minutes / 60:,.1f} h or more"
    return (
        f"behind {endpoint.name} and not trained: {', '.join(endpoint.members)}: "
        f"{endpoint.requests:,} requests, about {endpoint.tokens_in:,} tokens read, "
        f"{endpoint.tokens_out:,} written, {money}{rate}"
    )
