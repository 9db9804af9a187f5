"""A comparison's file, read: settings on settings, every fault of every method in one message.

Faults of the base come first, alone: what all methods share must be there before theirs are seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from phalanx.comparing.budget import KEYS, Budget, sized
from phalanx.comparing.faults import (
    METHOD_NAMES,
    Places,
    less_than_it_seems,
    misspelt,
    name_faults,
    of_the_base,
    only_faults,
    seed_faults,
    told,
    unused,
    without_use,
)
from phalanx.comparing.lineup import Lineup, line_up
from phalanx.comparing.reading import measurable
from phalanx.comparing.spec import (
    FROZEN,
    Comparison,
    ComparisonFile,
    Way,
    lined_up,
    made_members,
)
from phalanx.config.faults import Fault, did_you_mean, from_pydantic
from phalanx.config.keys import dotted
from phalanx.config.loading import PREFIX, found_paths, overridden, shaped
from phalanx.config.reading import read_file
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, PhalanxError
from phalanx.plan import require

SHARED_KEYS = {
    "seed": "the seeds are those of the comparison",
    "pool": "the pool is the same for all; `lineup` says who of it takes part",
    "evaluate": "all are measured alike",
    "output": "every run has a folder of its own in that of the comparison",
    **dict.fromkeys(
        ("resources", "endpoints", "vllm"), "the machinery is the same for all, who share answers"
    ),
}
"""What a method's settings cannot change, and why."""


def read_comparison(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    also: Collection[str] = (),
) -> Comparison:
    """The comparison of a file. ``overrides`` change its base; ``seeds`` and ``only`` (names of
    methods) what is run of it, and checked; beside ``only`` those of ``also`` that it has. Raises
    ConfigError with every fault of the base, or of every method."""
    source = read_file(path.expanduser(), str(path))
    if not {"base", "methods"} & source.data.keys() and Config.model_fields.keys() & source.data:
        raise ConfigError(
            f"{path}: is the configuration of a run (phalanx run {path}); expected a comparison, "
            "which has `base` and `methods` (docs/compare.md)"
        )
    try:
        wish = ComparisonFile.model_validate(source.data)
    except ValidationError as error:
        found = from_pydantic(error, source.data, ComparisonFile)
        texts = [told(one, str(path), source.places, source.data) for one in found]
        raise ConfigError(texts) from None
    if faults := [*without_use(wish, overrides)]:
        raise ConfigError([told(one, str(path), source.places) for one in faults])
    made = comparison_of(
        wish,
        str(path),
        path.expanduser().parent,
        overrides,
        seeds=seeds,
        only=only,
        also=also,
        places=source.places,
    )
    return replace(made, notes=(*of_the_base(made.base, wish), *made.notes))


def comparison_of(
    wish: ComparisonFile,
    where: str,
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    also: Collection[str] = (),
    places: Places | None = None,
) -> Comparison:
    """The same for a wish that was made here. Relative paths are looked up in ``folder``, then
    where one is; messages begin with ``where``, or with the line among the ``places``."""
    wanted = {name: dict(given or {}) for name, given in wish.methods.items()}
    faults = [
        *name_faults(wanted),
        *only_faults(wanted, only),
        *seed_faults(wish.seeds),
        *seed_faults(seeds),
    ]
    wanted = wanted if FROZEN in wanted else {FROZEN: {}, **wanted}
    if wish.against not in wanted:
        hint = did_you_mean(wish.against, list(wanted))
        faults.append(Fault(("against",), f"no method is named {wish.against!r}; {hint}"))
    if wanted.get(FROZEN, {}).get("method", FROZEN) != FROZEN:
        text = "this name is that of the method, which trains nobody"
        faults.append(Fault(("methods", FROZEN), text))
    try:
        base = _base(wish, folder, overrides)
    except ConfigError as error:
        faults += [Fault(("base",), fault) for fault in error.faults]
        raise ConfigError([told(fault, where, places) for fault in faults]) from None
    ways, more = [], [*faults, *_unmeasurable(base)]
    for name, given in wanted.items():
        if only and name not in (*only, *also, wish.against, FROZEN):
            continue
        try:
            ways.append(_way(name, given, base, folder, wish.budget, overrides))
        except ConfigError as error:
            more += [Fault(("methods", name), fault) for fault in error.faults]
        if name == wish.against and ways and ways[-1].lineup.needs_best:
            text = "who is best is measured in it; it cannot be lined up so"
            more.append(Fault(("methods", name), text))
    if ways and not more:
        more += [*_recruiting(base, ways[0]), *unused(ways, wish.budget)]
    if more:
        raise ConfigError([told(fault, where, places) for fault in dict.fromkeys(more)])
    notes = tuple(less_than_it_seems(ways, base, wish.against))
    return Comparison(
        base, tuple(ways), tuple(seeds or wish.seeds), wish.budget, wish.against, notes
    )


def _base(wish: ComparisonFile, folder: Path, overrides: Sequence[str]) -> Config:
    """The base with the command line's settings; items are drawn alike for all seeds."""
    if isinstance(wish.base, str):
        base = shaped(_source(wish.base, folder))
    else:
        inline = nested(wish.base, folder)
        preset = inline.pop("preset", None)
        base = shaped(None if preset is None else f"{PREFIX}{preset}", inline)
    base = shaped(base, overrides)
    drawn = base.evaluate.model_copy(update={"seed": base.evaluate.items_seed(base.seed)})
    # The keys that were set stay known as such.
    away = {"output": ""} if "output" in base.model_fields_set else {}
    return base.model_copy(update={"evaluate": drawn, **away})


def _source(name: str, folder: Path) -> str:
    if name.startswith(PREFIX):
        return name
    beside = folder / Path(name).expanduser()
    return str(beside if beside.exists() else name)


def nested(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings with dotted keys as a tree, with their files found beside the comparison's.

    Raises ConfigError where a key is given twice, once below the other.
    """
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        here = tree
        for part in above:
            here = here.setdefault(part, {})
            if not isinstance(here, dict):
                raise ConfigError(f"{key}: {part} is set to a value beside it; give one of them")
        if isinstance(value, Mapping):
            value = nested(value, folder)
            known = here.setdefault(last, {})
            clash = not isinstance(known, dict) or bool(known.keys() & value.keys())
            if not clash:
                known.update(value)
        else:
            clash = last in here
            here[last] = value
        if clash:
            raise ConfigError(f"{key} is given twice, dotted and nested; give one of them")
    return found_paths(tree, folder)


def _way(
    name: str,
    given: Mapping[str, Any],
    base: Config,
    folder: Path,
    budget: Budget | None,
    overrides: Sequence[str],
) -> Way:
    """One method's way, planned and sized. Raises ConfigError with its faults."""
    settings = nested(given, folder)
    who = settings.pop("lineup", {})
    try:
        lineup = Lineup.model_validate(who)
    except ValidationError as error:
        found = from_pydantic(error, who, Lineup)
        raise ConfigError(
            [f"{dotted(('lineup', *one.path), None)}: {one.text}" for one in found]
        ) from None
    faults = [f"{key}: {why}" for key, why in SHARED_KEYS.items() if key in settings]
    settings = {key: value for key, value in settings.items() if key not in SHARED_KEYS}
    if "method" not in settings:
        faults += misspelt(name, given, base)
        settings["method"] = name if name in METHOD_NAMES else base.method
    faults += _set_by_budget(settings, budget, overrides)
    try:
        config = shaped(base, settings)
        config = lined_up(config, line_up(made_members(base, None), lineup))
        require(config)
    except ConfigError as error:
        raise ConfigError([*faults, *error.faults]) from None
    if faults:
        raise ConfigError(faults)
    if budget is None:
        return Way(name, config, lineup)
    config, note, uses = sized(config, budget)
    return Way(name, config, lineup, note, uses)


def _set_by_budget(
    settings: Mapping[str, Any], budget: Budget | None, overrides: Sequence[str]
) -> list[str]:
    """Where one key says how large a method is, a budget says it: no setting, and no override."""
    keys = KEYS.get(str(settings["method"]), ())
    if budget is None or len(keys) != 1:
        return []
    section, _, name = keys[0].partition(".")
    below = settings.get(section)
    for_all = any(overridden(one, keys[0]) for one in overrides)
    if for_all or (isinstance(below, dict) and name in below):
        return [f"{keys[0]}: the budget says how many; leave one of them out"]
    return []


def _unmeasurable(base: Config) -> list[Fault]:
    try:
        return [Fault(("base",), fault) for fault in measurable(base)]
    except PhalanxError as error:  # items that cannot be loaded, a package that is missing
        return [Fault(("base",), str(error))]


def _recruiting(base: Config, way: Way) -> list[Fault]:
    """Faults of the recruits, which arms know as members that are there."""
    try:
        require(way.config.model_copy(update={"pool": base.pool}))
    except ConfigError as error:
        return [Fault(("base",), fault) for fault in error.faults]
    return []
