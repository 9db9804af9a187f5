"""What is wrong with a comparison as a whole, or has less effect than it seems; and in what words.

Faults of configurations are found where those are; here are those of names, seeds and choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from phalanx.comparing.budget import Budget
from phalanx.comparing.spec import FROZEN, POOL, ComparisonFile, Way, made_members
from phalanx.config.faults import Fault, closest, did_you_mean
from phalanx.config.keys import Path, dotted
from phalanx.config.schema import Config, MethodName
from phalanx.methods import METHODS

METHOD_NAMES: tuple[str, ...] = get_args(MethodName)
OPTIONS = {
    "seed": "the runs have the seeds of the comparison; give --seeds, or evaluate.seed for the "
    "draw of the items",
    "output": "every run has a folder of its own in that of the comparison; give --out",
}
"""What the command says, and settings of a comparison do not."""
BESIDE = (".yaml", ".log")
"""What lies beside a run's folder, with its name before it."""
Places = Mapping[Path, str]
"""Where each key of a file stands, as "FILE:LINE"."""


def told(fault: Fault, where: str, places: Places | None, data: Any = None) -> str:
    """A fault with its line. Its text may begin with a key below its path, dotted."""
    words, key = dotted(fault.path, data), fault.text.partition(": ")[0]
    whole = f"{words}.{key}."
    known = {
        name: place
        for path, place in (places or {}).items()
        if whole.startswith(name := f"{dotted(path, data)}.")
        and path[: len(fault.path)] == fault.path[: len(path)]
    }
    place = known[max(known, key=len)] if known else where
    return ": ".join(filter(None, [place, words, fault.text]))


def without_use(wish: ComparisonFile, overrides: Sequence[str]) -> Iterator[Fault]:
    """Settings for all that a comparison does not ask: of the command, and of a base written
    here. A base that is a file of its own may have them, for its own runs."""
    here = wish.base if isinstance(wish.base, dict) else {}
    for key, why in OPTIONS.items():
        if key in here:
            yield Fault(("base", key), why)
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key in OPTIONS:
            yield Fault((), f"{text!r}: {OPTIONS[key]}")
        if key == "method" and not _takes_the_base_s(wish):
            yield Fault((), f"{text!r}: every way here says its own method; leave it out")


def _takes_the_base_s(wish: ComparisonFile) -> bool:
    """Whether the base's method is that of any way."""
    return any(
        name not in METHOD_NAMES and "method" not in (given or {})
        for name, given in wish.methods.items()
    )


def of_the_base(base: Config, wish: ComparisonFile) -> Iterator[str]:
    """What the base says for runs of its own, and not for these."""
    given = base.model_fields_set
    if "seed" in given:
        yield (
            f"base: seed {base.seed} is not that of these runs, which have the comparison's; it "
            "draws the items, unless evaluate.seed does."
        )
    if "output" in given:
        yield "base: output has no use here; --out names the folder."
    if "method" in given and not _takes_the_base_s(wish) and base.method not in wish.methods:
        yield f"base: method {base.method} has no use here: every way says its own."


def less_than_it_seems(ways: Sequence[Way], base: Config, against: str) -> Iterator[str]:
    contestants = sum("contest" in one.roles for one in made_members(base, None))
    for way in ways:
        if way.lineup.first is not None and way.lineup.first >= contestants:
            yield (
                f"{way.name}: lineup.first {way.lineup.first} leaves nobody out: there are "
                f"{contestants} contestants."
            )
    names = {way.name for way in ways}
    if names == {FROZEN}:
        yield f"Only {FROZEN}, which trains nobody, is run: alone it is compared with nothing."
    elif against != FROZEN and names == {FROZEN, against}:
        yield f"Only {against} and {FROZEN} are run: nobody else is compared with {against}."


def name_faults(wanted: Iterable[str]) -> Iterator[Fault]:
    """Names become folders, beside files of these names, and columns."""
    seen = {FROZEN: FROZEN}
    for name in wanted:
        at, folded = ("methods", name), name.casefold()
        plain = name and name[0].isalnum() and all(c.isalnum() or c in "_.-" for c in name)
        if not plain or not name.isascii() or len(name) > 64:
            text = f"{name!r} names a folder; use letters, digits, and _ . -"
            yield Fault(("methods",), text)
        elif name.endswith("."):
            yield Fault(at, "names a folder; some disks drop the dot at its end; leave it out")
        elif folded.endswith(BESIDE):
            text = f"a run has files of its name with {' and '.join(BESIDE)}; leave the end out"
            yield Fault(at, text)
        if folded == POOL:
            text = f"{name!r} is the folder of the recruits; choose another name"
            yield Fault(("methods",), text)
        elif (other := seen.setdefault(folded, name)) != name:
            text = f"is the same folder as {other} where a disk does not tell capitals"
            yield Fault(at, f"{text}; choose another name")


def only_faults(wanted: Mapping[str, Any], only: Sequence[str]) -> list[Fault]:
    known = list(dict.fromkeys([*wanted, FROZEN]))
    return [
        Fault((), f"--only {name}: no method of that name; {did_you_mean(name, known)}")
        for name in only
        if name not in known
    ]


def seed_faults(seeds: Sequence[int]) -> list[Fault]:
    texts = [f"{seed} is none; they are numbers from 0" for seed in seeds if seed < 0]
    texts += ["one stands twice"] if len(set(seeds)) < len(seeds) else []
    return [Fault(("seeds",), text) for text in texts]


def unused(ways: Sequence[Way], budget: Budget | None) -> list[Fault]:
    """A budget of what nobody uses makes nothing equal."""
    busy = [way for way in ways if METHODS[way.config.method].kind != "none"]
    if budget is None or not busy or any(way.uses for way in busy):
        return []
    why = "; nobody is trained" if budget.quantity == "steps" else ""
    text = f"no method here uses any{why}; choose another quantity"
    return [Fault(("budget", budget.quantity), text)]


def misspelt(name: str, given: Mapping[str, Any], base: Config) -> list[str]:
    """A name that is none of a method is for other settings of the base's."""
    near = closest(name, METHOD_NAMES)
    if name in METHOD_NAMES or (given and near in (None, base.method)):
        return []
    hint = did_you_mean(name, METHOD_NAMES)
    other = "another name needs settings, and `method` where that is not the base's"
    return [f"is no method ({hint}); {other}"]
