"""What each part of Sparta is worth: the whole method, and one way without each part.

The paper's Table 3 removes reputation (uniform weights of the judges) and match-making (opponents
fully at random); its figures are not known here, only that each removal hurts (a third-party note;
``reproducing/papers/sparta.yaml`` has what is known). Everything else here is ours: the released
code and this package have further parts that a configuration can take away, or put others in their
place. What a configuration does not have is not removed from it, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from phalanx.comparing.lineup import Lineup, judges_a_duel, line_up
from phalanx.comparing.spec import ComparisonFile, made_members
from phalanx.config.faults import did_you_mean
from phalanx.config.loading import shaped
from phalanx.config.mixing import pool_settings
from phalanx.config.schema import Config, SftSettings
from phalanx.engines.scripted import load_script
from phalanx.errors import ConfigError
from phalanx.plan import require
from phalanx.pool import members_from

FULL = "sparta"
"""The way that nothing is taken from."""
GROUPS = ("components", "pool", "diversity", "protocols", "aggregation")
PROTOCOLS = ("rubric", "expected", "pairwise", "likelihood", "reward", "moa")
RULES = ("mean", "reputation", "median", "one_coin")
REPUTATIONS = ("sparta", "elo", "bradley_terry", "frozen")
HURTS = "removing it hurts (note; figure not known)"
LARGER = "more members are better (note; figures not known)"


@dataclass(frozen=True, slots=True)
class Ablation:
    """One way: ``words`` say what it takes away (and what stands in its place), ``settings`` are
    those of its way.

    ``idle`` says why it cannot be run with this configuration, or would change nothing; ``note``
    what to know of one that is; ``paper`` what the paper says of it, as far as that is known.
    """

    name: str
    group: str
    words: str
    settings: Mapping[str, Any]
    idle: str = ""
    note: str = ""
    paper: str = ""


@dataclass(frozen=True, slots=True)
class Study:
    """The ways that are run, and those that are not, each with its ``idle`` reason."""

    ways: tuple[Ablation, ...]
    idle: tuple[Ablation, ...]

    def file(self, base: str, seeds: Sequence[int]) -> ComparisonFile:
        """The comparison that runs it: without a budget, since all parts but one stay as they
        are. ``base`` is the configuration's file or preset."""
        methods = {way.name: {"method": FULL, **way.settings} for way in self.ways}
        return ComparisonFile(base=base, seeds=list(seeds), methods={FULL: {}, **methods})


def study(config: Config, groups: Sequence[str] = (), only: Sequence[str] = ()) -> Study:
    """What can be taken from this configuration. ``groups`` and ``only`` (names) choose; default:
    everything.

    Raises ConfigError, with every fault, for a configuration that cannot run, unknown groups or
    names, and names that cannot be run with it.
    """
    if config.method != FULL:
        raise ConfigError(f"method: is {config.method}; what is taken apart here is {FULL}")
    require(config)
    known = list(_catalogue(config))
    faults = [
        f"--groups {name}: there is no such group; {did_you_mean(name, GROUPS)}"
        for name in groups
        if name not in GROUPS
    ]
    names = [one.name for one in known]
    faults += [
        f"--only {name}: there is nothing of that name to take away; {did_you_mean(name, names)}"
        for name in only
        if name not in names
    ]
    chosen = [
        _tried(config, one)
        for one in known
        if (one.name in only if only else not groups or one.group in groups)
    ]
    faults += [f"--only {one.name}: {one.idle}" for one in chosen if only and one.idle]
    if not faults and all(one.idle for one in chosen):
        faults = [f"nothing can be taken away: {one.name}: {one.idle}" for one in chosen]
    if faults:
        raise ConfigError(faults)
    chosen = [_once(one, chosen, bool(only)) for one in chosen]
    ways = tuple(one for one in chosen if not one.idle)
    return Study(ways, tuple(one for one in chosen if one.idle))


def _once(one: Ablation, chosen: Sequence[Ablation], named: bool) -> Ablation:
    """Judges weigh the same in two groups; who names both gets both."""
    twin = {way.name for way in chosen if not way.idle} >= {"no-reputation", "aggregate-mean"}
    if one.name == "aggregate-mean" and twin and not named:
        return replace(one, idle="no-reputation is the same")
    return one


def _tried(config: Config, ablation: Ablation) -> Ablation:
    """The same, idle where the rules refuse it, with the first of their reasons."""
    if ablation.idle:
        return ablation
    settings = dict(ablation.settings)
    lineup = Lineup.model_validate(settings.pop("lineup", {}))
    try:
        changed = shaped(config, settings)
        members = line_up(made_members(changed, None), lineup)
        pool = changed.pool.model_copy(update={"members": members, "recruit": None})
        require(changed.model_copy(update={"pool": pool}))
    except ConfigError as error:
        return replace(ablation, idle=f"refused: {error.faults[0]}")
    return ablation


def _catalogue(config: Config) -> Iterator[Ablation]:
    """Every ablation there is, those that have no use here with the reason."""
    makers: Sequence[Callable[[Config], Iterator[Ablation]]] = (
        _of_the_paper,
        _further,
        _reputations,
        _sizes,
        _diversity,
        _protocols,
        _aggregations,
    )
    for maker in makers:
        yield from maker(config)


def _names(config: Config, role: str) -> list[str]:
    return [member.name for member in pool_settings(config) if role in member.roles]


def _of_the_paper(config: Config) -> Iterator[Ablation]:
    weighed = config.aggregate.rule == "reputation" and "reputation" not in config.without
    first = config.iterations == 1 and len(set(_starts(config))) == 1
    rivals = len(_names(config, "contest")) - 1
    random = "match-making" in config.without or config.match.random_probability == 1
    near = (
        f"with {rivals + 1} contestants the nearest {config.match.nearest} are everybody else, so "
        "that nothing but the draw changes; lower match.nearest"
        if config.match.nearest >= rivals
        else ""
    )
    not_weighed = "" if weighed else "no reputation weighs the judges here"
    not_matched = "opponents are drawn at random already" if random else ""
    yield Ablation(
        "no-reputation", "components", "the weights of reputation: every judge weighs the same",
        {"without": _without(config, "reputation")}, not_weighed,
        "in one iteration all reputations are still those of the start: the same outcomes"
        if first
        else "",
        HURTS,
    )  # fmt: skip
    yield Ablation(
        "no-match-making", "components", "match-making: opponents are drawn at random",
        {"without": _without(config, "match-making")}, not_matched, near, HURTS,
    )  # fmt: skip
    yield Ablation(
        "neither", "components", "both of these",
        {"without": ["reputation", "match-making"]}, not_weighed or not_matched, near,
    )  # fmt: skip


def _starts(config: Config) -> list[float]:
    """The reputations at the start, of those who judge."""
    return [
        member.reputation if member.reputation is not None else config.reputation.initial
        for member in pool_settings(config)
        if "judge" in member.roles
    ]


def _without(config: Config, part: str) -> list[str]:
    return list(dict.fromkeys([*config.without, part]))


def _further(config: Config) -> Iterator[Ablation]:
    train, pairs = config.train, config.pairs
    group, dpo = "components", train.method == "dpo"
    _, most_judges = judges_a_duel(pool_settings(config))
    optimiser = train.model_dump(include=set(SftSettings.model_fields))
    nobody = "" if train.method != "none" else "nothing is learned here (train.method: none)"
    yield Ablation(
        "random-winners", group, "the winners: half of the pairs are swapped",
        {"train.label_noise": 0.5}, nobody or _already(train.label_noise == 0.5),
    )  # fmt: skip
    yield Ablation(
        "chosen-only", group, "the rejected responses: SFT on the chosen ones",
        {"train.method": "sft", "sft": optimiser},
        "" if dpo else f"train.method is {train.method} already",
    )  # fmt: skip
    yield Ablation(
        "own-pairs", group, "others' pairs: each learns from its own duels",
        {"train.scope": "own"}, nobody or _already(train.scope == "own"),
    )  # fmt: skip
    plain = {"margin": 0.0, "keep": 1.0, "truncated": "allow", "max_length_ratio": None}
    unfiltered = all(getattr(pairs, key) == value for key, value in plain.items())
    yield Ablation(
        "no-filters", group, "the choice of pairs: all but ties and identical ones are learned",
        {"pairs": plain}, nobody or ("no pair is filtered here" if unfiltered else ""),
        "" if pairs.keep == 1 else "more pairs, so more training steps",
    )  # fmt: skip
    yield Ablation(
        "no-margin-weights", group, "weights of pairs by their margins",
        {"pairs.weight_by_margin": False},
        nobody or ("" if pairs.weight_by_margin else "pairs have no weights here"),
    )  # fmt: skip
    yield Ablation(
        "no-nll", group, "the added likelihood of the chosen response",
        {"train.nll_weight": 0.0},
        nobody or ("" if train.nll_weight else "there is none here (train.nll_weight: 0)"),
    )  # fmt: skip
    yield Ablation(
        "one-judge-a-duel", group, "all but one judge of each duel, drawn at random",
        {"judge.per_duel": 1},
        _already(config.judge.per_duel == 1)
        or ("" if most_judges > 1 else "every duel has one judge as it is"),
    )  # fmt: skip
    yield Ablation(
        "one-judge", group, "the council: a frozen copy of the best initial member judges alone",
        {"lineup": {"one_judge": True}},
    )  # fmt: skip
    yield Ablation(
        "no-standardise", group, "dividing each judge's differences by their spread",
        {"aggregate.standardise": False},
        "" if config.aggregate.standardise else "they are not divided here",
    )  # fmt: skip


def _already(is_so: bool) -> str:
    return "it is so already" if is_so else ""


def _reputations(config: Config) -> Iterator[Ablation]:
    now, group = config.reputation.rule, "components"
    unused = (
        ""
        if config.aggregate.rule == "reputation" and "reputation" not in config.without
        else "reputations weigh no judges here"
    )
    words = {
        "frozen": "every move of reputations",
        "elo": "the paper's move of reputations: Elo's instead, which expects favourites to win",
        "bradley_terry": "the paper's move of reputations: a fit to the iteration's duels instead",
        "sparta": "the move of reputations: the paper's instead",
    }
    for rule in REPUTATIONS:
        keys = {"initial"} if rule == "frozen" else {"initial", "floor"}  # alike in all of them
        kept = config.reputation.model_dump(include=keys, exclude_defaults=True)
        yield Ablation(
            f"reputation-{rule}", group, words[rule], {"reputation": {"rule": rule, **kept}},
            f"reputations move by {rule} already" if rule == now else "", unused,
        )  # fmt: skip
    faded = getattr(config.reputation, "fade", "none")
    short = "" if config.iterations > 2 else "it begins with the third iteration"
    if faded != "none":
        yield Ablation(
            "no-fade", group, "the fade-out of low-ranked members", {"reputation.fade": "none"},
            short,
        )  # fmt: skip
        return
    for fade in ("static", "dynamic"):
        yield Ablation(
            f"fade-{fade}", group, f"the say of low-ranked members, by the {fade} fade-out",
            {"reputation.fade": fade},
            short if now == "sparta" else f"reputations move by {now}, which has no fade-out",
        )  # fmt: skip


def _sizes(config: Config) -> Iterator[Ablation]:
    contestants, pool = _names(config, "contest"), pool_settings(config)
    for size in range(2, len(contestants)):
        fewest, most = judges_a_duel(line_up(pool, Lineup(first=size)))
        whole, most_of_whole = judges_a_duel(pool)
        note = f"{_span(fewest, most)} may judge a duel, of the whole {_span(whole, most_of_whole)}"
        left = ", ".join(contestants[:size])
        yield Ablation(
            f"pool-{size}", "pool", f"all contestants but {left}", {"lineup": {"first": size}},
            "", note, LARGER,
        )  # fmt: skip
    if len(contestants) < 3:
        yield Ablation("pool-2", "pool", "", {}, "the pool has two contestants as it is")


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _diversity(config: Config) -> Iterator[Ablation]:
    yield Ablation(
        "copies", "diversity", "diversity: every member is a copy of the best initial one",
        {"lineup": {"copies": True}}, "",
        "they differ in the seeds of their samples alone",
        "a diverse pool beats copies of one model (note; figures not known)",
    )  # fmt: skip


def _protocols(config: Config) -> Iterator[Ablation]:
    now = config.judge.protocol
    judges = [m for m in members_from(config) if "judge" in m.roles]
    scripts = {judge.base for judge in judges if judge.engine == "scripted"}
    unable = sorted(script for script in scripts if not load_script(script).get("reward"))
    reasons = {"reward": f"the script {unable[0]} has no rewards"} if unable else {}
    for protocol in PROTOCOLS:
        yield Ablation(
            f"judge-{protocol}", "protocols", f"judging by {now}: by {protocol} instead",
            {"judge.protocol": protocol, "judge.template": None},
            _already(protocol == now) or reasons.get(protocol, ""),
        )  # fmt: skip


def _aggregations(config: Config) -> Iterator[Ablation]:
    now = config.aggregate.rule
    for rule in RULES:
        yield Ablation(
            f"aggregate-{rule}", "aggregation", f"aggregation by {now}: by {rule} instead",
            {"aggregate.rule": rule}, _already(rule == now),
        )  # fmt: skip
