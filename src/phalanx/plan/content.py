"""What only a look into the named files can tell: rows, domains, templates. No model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.config.faults import Fault, did_you_mean
from phalanx.config.rules import table_problem
from phalanx.config.schema import Config
from phalanx.config.uses import source_of
from phalanx.errors import ConfigError, PhalanxError

if TYPE_CHECKING:
    from phalanx.tasks.contamination import Overlaps

BUILTIN = "builtin:skills"


def content_faults(config: Config) -> Iterator[Fault]:
    """Faults in the files that a configuration names, and in the domains of recruits.

    Files that do not exist are left to :mod:`phalanx.config.rules`; the hub is not asked.
    """
    yield from _instructions(config)
    yield from _recruits(config)
    yield from _tasks(config)
    yield from _dev_items(config)
    yield from _template(config)
    yield from _mixture(config)
    yield from _self_rewarding(config)
    yield from _scripts(config)


def _scripts(config: Config) -> Iterator[Fault]:
    """The rule files of scripted members."""
    from phalanx.engines.scripted import PREFIX, load_script

    for position, member in enumerate(config.pool.members):
        source = member.model or ""
        if member.engine == "scripted" and Path(source.removeprefix(PREFIX)).is_file():
            try:
                load_script(source)
            except ConfigError as error:
                yield Fault(("pool", "members", position, "model"), str(error))


def _is_local(source: str) -> bool:
    local = bool(source) and not source.startswith(("hub:", "builtin:"))
    return local and Path(source).expanduser().is_file() and table_problem(source, hub=True) is None


def _instructions(config: Config) -> Iterator[Fault]:
    section, source = source_of(config)
    if source == BUILTIN:
        yield from _skills(("instructions", "domains"), config.instructions.domains)
    if not _is_local(source):
        return
    from phalanx.sources import instructions_of

    try:
        instructions_of(config)
    except ConfigError as error:
        yield Fault((section, "source"), str(error))


def _skills(path: tuple[str | int, ...], domains: Sequence[str]) -> Iterator[Fault]:
    """Unknown names among the embedded skills."""
    from phalanx.skills import DOMAINS

    for domain in domains:
        if domain not in DOMAINS:
            yield Fault(
                path, f"{BUILTIN} has no domain {domain!r}; {did_you_mean(domain, DOMAINS)}"
            )


def _recruits(config: Config) -> Iterator[Fault]:
    recruit = config.pool.recruit
    if recruit is None:
        return
    if recruit.data == BUILTIN:
        from phalanx.skills import DOMAINS

        known = list(DOMAINS)
    elif _is_local(recruit.data):
        from phalanx.sources import read_demonstrations

        try:
            known = sorted({row.domain for row in read_demonstrations(recruit.data)})
        except ConfigError as error:
            yield Fault(("pool", "recruit", "data"), str(error))
            return
    else:
        return
    for name, domains in recruit.specialists.items():
        for domain in domains:
            if domain not in known:
                hint = did_you_mean(domain, known)
                yield Fault(
                    ("pool", "recruit", "specialists", name),
                    f"{recruit.data} has no domain {domain!r}; {hint}",
                )


def _tasks(config: Config) -> Iterator[Fault]:
    for position, task in enumerate(config.evaluate.tasks):
        if task.source == BUILTIN:
            yield from _skills(("evaluate", "tasks", position, "domains"), task.domains)
        if not _is_local(task.source):
            continue
        from phalanx.tasks import load_task

        try:
            load_task(task, seed=config.evaluate.items_seed(config.seed))
        except PhalanxError as error:  # a package that is missing, code that cannot be confined
            yield Fault(("evaluate", "tasks", position, "source"), str(error))


def _dev_items(config: Config) -> Iterator[Fault]:
    """Who answers alone where nobody is named is whoever is best on dev items: there must be one.

    What tasks of the hub have is not known before they are asked.
    """
    section = getattr(config, config.method, None)
    share = config.evaluate.dev_share
    if config.method not in ("self_consistency", "best_of_n") or section.member or not share:
        return
    from phalanx.tasks import load_task, split_of

    items = []
    for task in config.evaluate.tasks:
        if task.source != BUILTIN and not _is_local(task.source):
            return
        try:
            items += load_task(task, seed=config.evaluate.items_seed(config.seed))
        except PhalanxError:
            return  # said by _tasks
    if items and not any(split_of(item, share) == "dev" for item in items):
        text = (
            f"names nobody, and with evaluate.dev_share: {share:g} none of the {len(items)} items "
            "is a dev item, on which a member is best; name one, or raise evaluate.dev_share"
        )
        yield Fault((config.method, "member"), text)


def overlaps_of(config: Config) -> list[Overlaps]:
    """What of local files of instructions and demonstrations overlaps items of the tasks here.

    For a configuration without :func:`content_faults`. The hub is not asked, and what is drawn
    from the embedded skills is compared when a run starts.
    """
    recruit = config.pool.recruit
    instructions = _is_local(source_of(config)[1])
    demonstrations = recruit is not None and _is_local(recruit.data)
    if config.instructions.contamination == "off" or not (instructions or demonstrations):
        return []
    from phalanx.tasks import contamination, load_task

    here = [t for t in config.evaluate.tasks if t.source == BUILTIN or _is_local(t.source)]
    items = [
        item
        for task in here
        for item in load_task(task, seed=config.evaluate.items_seed(config.seed))
    ]
    if not items:
        return []
    from phalanx.sources import instructions_of, read_demonstrations

    found = []
    if instructions:
        read = instructions_of(config).instructions
        found.append(contamination.of_instructions(read, config, items))
    if recruit is not None and demonstrations:
        rows = read_demonstrations(recruit.data)
        found.append(contamination.of_demonstrations(rows, config, items))
    return found


def _template(config: Config) -> Iterator[Fault]:
    """Placeholders of one's own template; what has no use or does not exist is a rule's affair."""
    judge = config.judge
    if judge.protocol in ("likelihood", "reward", "moa"):
        return  # they have no prompt, or those of the mixture
    if judge.template is None or judge.low >= judge.high:
        return
    if not Path(judge.template).expanduser().is_file():
        return
    from phalanx.collective.judging import validate_template

    try:
        validate_template(judge)
    except ConfigError as error:
        yield Fault(("judge", "template"), str(error))


def _self_rewarding(config: Config) -> Iterator[Fault]:
    """One's own rubric, and demonstrations of judging."""
    if config.method != "self_rewarding":
        return
    template, seed = config.self_rewarding.template, config.self_rewarding.judge_seed
    if template is not None and Path(template).expanduser().is_file():
        from phalanx.collective.self_judging import PLACEHOLDERS
        from phalanx.collective.templates import load_template

        try:
            load_template(template, PLACEHOLDERS)
        except ConfigError as error:
            yield Fault(("self_rewarding", "template"), str(error))
    if _is_local(seed):
        from phalanx.sources import read_demonstrations

        try:
            read_demonstrations(seed, domains=False)
        except ConfigError as error:
            yield Fault(("self_rewarding", "judge_seed"), str(error))


def _mixture(config: Config) -> Iterator[Fault]:
    """One's own instruction to aggregators, and one's own list of criteria."""
    template, criteria = config.mixture.template, config.reward.criteria
    if template is not None and Path(template).expanduser().is_file():
        from phalanx.collective.templates import load_template

        try:
            load_template(template, ("proposals",))
        except ConfigError as error:
            yield Fault(("mixture", "template"), str(error))
    if criteria != "builtin" and Path(criteria).expanduser().is_file():
        from phalanx.collective.criteria import load_criteria

        try:
            load_criteria(criteria)
        except ConfigError as error:
            yield Fault(("reward", "criteria"), str(error))
