"""A comparison's file, read: settings on settings, every fault of every method in one message.

Faults of the base come first, alone: what all methods share must be there before theirs are seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from phalanx.comparing.budget import KEYS, Budget, sized
from phalanx.comparing.lineup import Lineup, line_up
from phalanx.comparing.reading import measurable
from phalanx.comparing.spec import (
    FROZEN,
    POOL,
    Comparison,
    ComparisonFile,
    Way,
    lined_up,
    made_members,
)
from phalanx.config.faults import closest, did_you_mean
from phalanx.config.keys import describe
from phalanx.config.loading import PREFIX, found_paths, shaped
from phalanx.config.reading import Source, read_file
from phalanx.config.schema import Config, MethodName
from phalanx.errors import ConfigError, PhalanxError
from phalanx.methods import METHODS
from phalanx.plan import require

METHOD_NAMES: tuple[str, ...] = get_args(MethodName)
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
        raise ConfigError(_shape_faults(error, source)) from None
    return comparison_of(
        wish, str(path), path.expanduser().parent, overrides, seeds=seeds, only=only, also=also
    )


def comparison_of(
    wish: ComparisonFile,
    where: str,
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    seeds: Sequence[int] = (),
    only: Sequence[str] = (),
    also: Collection[str] = (),
) -> Comparison:
    """The same for a wish that was made here. Relative paths are looked up in ``folder``, then
    where one is; messages begin with ``where``."""
    wanted = {name: dict(given or {}) for name, given in wish.methods.items()}
    faults = [*_names(wanted), *_chosen(wanted, only), *_seeds(wish.seeds)]
    wanted = wanted if FROZEN in wanted else {FROZEN: {}, **wanted}
    if wish.against not in wanted:
        hint = did_you_mean(wish.against, list(wanted))
        faults.append(f"against: no method is named {wish.against!r}; {hint}")
    if wanted.get(FROZEN, {}).get("method", FROZEN) != FROZEN:
        faults.append(f"methods.{FROZEN}: this name is that of the method, which trains nobody")
    try:
        base = _base(wish, folder, overrides)
    except ConfigError as error:
        faults += [f"base: {fault}" for fault in error.faults]
        raise ConfigError([f"{where}: {fault}" for fault in faults]) from None
    ways, more = [], [*faults, *_unmeasurable(base)]
    for name, given in wanted.items():
        if only and name not in (*only, *also, wish.against, FROZEN):
            continue
        try:
            ways.append(_way(name, given, base, folder, wish.budget, overrides))
        except ConfigError as error:
            more += [f"methods.{name}: {fault}" for fault in error.faults]
        if name == wish.against and ways and ways[-1].lineup.needs_best:
            more.append(f"methods.{name}: who is best is measured in it; it cannot be lined up so")
    if ways and not more:
        more += [*_recruiting(base, ways[0]), *_unused(ways, wish.budget)]
    if more:
        raise ConfigError([f"{where}: {fault}" for fault in dict.fromkeys(more)])
    return Comparison(base, tuple(ways), tuple(seeds or wish.seeds), wish.budget, wish.against)


def _shape_faults(error: ValidationError, source: Source) -> list[str]:
    """pydantic's complaints about the file, with their places."""
    faults = []
    for entry in error.errors(include_url=False, include_context=False):
        path = tuple(part for part in entry["loc"] if part not in ("str", "dict[str,any]"))
        known = list(ComparisonFile.model_fields) if len(path) == 1 else list(Budget.model_fields)
        text = entry["msg"].removeprefix("Value error, ")
        if entry["type"] == "extra_forbidden":
            text = f"unknown key; {did_you_mean(str(path[-1]), known)}"
        elif entry["type"] == "missing":
            text = "this key is missing"
        elif entry["type"] != "value_error":
            text = f"{text}, got {describe(entry['input'])}"
        place = next(
            (
                source.places[path[:n]]
                for n in range(len(path), -1, -1)
                if path[:n] in source.places
            ),
            "",
        )
        words = ".".join(map(str, path))
        faults.append(": ".join(filter(None, [place, words, text])))
    return list(dict.fromkeys(faults))


def _names(wanted: Iterable[str]) -> list[str]:
    """Names become folders and columns."""
    faults = []
    for name in wanted:
        plain = name and name[0].isalnum() and all(c.isalnum() or c in "_.-" for c in name)
        if not plain or not name.isascii() or len(name) > 64:
            faults.append(f"methods: {name!r} names a folder; use letters, digits, and _ . -")
        if name == POOL:
            faults.append(f"methods: {POOL!r} is the folder of the recruits; choose another name")
    return faults


def _chosen(wanted: Mapping[str, Any], only: Sequence[str]) -> list[str]:
    known = [*wanted, FROZEN]
    return [
        f"--only {name}: no method of that name; {did_you_mean(name, known)}"
        for name in only
        if name not in known
    ]


def _seeds(seeds: Sequence[int]) -> list[str]:
    return [f"seeds: {s} is none; they are numbers from 0" for s in seeds if s < 0] + (
        ["seeds: one stands twice"] if len(set(seeds)) < len(seeds) else []
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
    return base.model_copy(update={"evaluate": drawn, "output": ""})


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
    try:
        lineup = Lineup.model_validate(settings.pop("lineup", {}))
    except ValidationError as error:
        bad = error.errors(include_url=False)
        raise ConfigError(
            [f"lineup.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in bad]
        ) from None
    faults = [f"{key}: {why}" for key, why in SHARED_KEYS.items() if key in settings]
    settings = {key: value for key, value in settings.items() if key not in SHARED_KEYS}
    if "method" not in settings:
        faults += _misspelt(name, given, base)
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


def _misspelt(name: str, given: Mapping[str, Any], base: Config) -> list[str]:
    """A name that is none of a method is for other settings of the base's."""
    near = closest(name, METHOD_NAMES)
    if name in METHOD_NAMES or (given and near in (None, base.method)):
        return []
    hint = did_you_mean(name, METHOD_NAMES)
    other = "another name needs settings, and `method` where that is not the base's"
    return [f"is no method ({hint}); {other}"]


def _set_by_budget(
    settings: Mapping[str, Any], budget: Budget | None, overrides: Sequence[str]
) -> list[str]:
    """Where one key says how large a method is, a budget says it: no setting, and no override."""
    keys = KEYS.get(str(settings["method"]), ())
    if budget is None or len(keys) != 1:
        return []
    section, _, name = keys[0].partition(".")
    below = settings.get(section)
    overridden = keys[0] in {one.partition("=")[0].strip() for one in overrides}
    if overridden or (isinstance(below, dict) and name in below):
        return [f"{keys[0]}: the budget says how many; leave one of them out"]
    return []


def _unmeasurable(base: Config) -> list[str]:
    try:
        return [f"base: {fault}" for fault in measurable(base)]
    except PhalanxError as error:  # items that cannot be loaded, a package that is missing
        return [f"base: {error}"]


def _unused(ways: Sequence[Way], budget: Budget | None) -> list[str]:
    """A budget of what nobody uses makes nothing equal."""
    busy = [way for way in ways if METHODS[way.config.method].kind != "none"]
    if budget is None or not busy or any(way.uses for way in busy):
        return []
    why = "; nobody is trained" if budget.quantity == "steps" else ""
    return [f"budget.{budget.quantity}: no method here uses any{why}; choose another quantity"]


def _recruiting(base: Config, way: Way) -> list[str]:
    """Faults of the recruits, which arms know as members that are there."""
    try:
        require(way.config.model_copy(update={"pool": base.pool}))
    except ConfigError as error:
        return [f"base: {fault}" for fault in error.faults]
    return []
