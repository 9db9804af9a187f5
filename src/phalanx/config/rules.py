"""Rules that span fields or look at the disk. Nothing here loads a model or imports torch.

Each rule is a small generator of :class:`~phalanx.config.faults.Fault`. A *fault* refuses the
configuration; a *note* is worth knowing and printed by ``phalanx check``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from pathlib import Path as FilePath

from phalanx.config.faults import Fault, closest, did_you_mean
from phalanx.config.keys import Path, dotted
from phalanx.config.machine import count_gpus
from phalanx.config.mixing import BEST_OF, MAJORITY, RESERVED, TOGETHER
from phalanx.config.rules_devices import check_devices
from phalanx.config.rules_guarding import check_guards
from phalanx.config.rules_losses import check_loss
from phalanx.config.rules_methods import check_methods
from phalanx.config.rules_moaa import (
    Purpose,
    check_command,
    check_moaa,
    check_rewards,
    check_unused,
)
from phalanx.config.rules_rivals import check_rival
from phalanx.config.rules_served import check_served
from phalanx.config.rules_sharing import check_sharing
from phalanx.config.rules_tasks import check_tasks
from phalanx.config.rules_tracking import check_tracking
from phalanx.config.rules_training import check_whole, holds, prompt_leaves_room
from phalanx.config.rules_vllm import check_vllm
from phalanx.config.schema import Config, MemberSettings
from phalanx.config.uses import USES, source_of, trains

BUILTIN_BASES = {"smollm2-135m": 134_515_008}
"""Bases that need no download, and their number of parameters."""
BUILTIN_INSTRUCTIONS = ("skills",)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_DATA = re.compile(HUB_ID.pattern + r"(:[\w.-]+)?")
TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


def faults(config: Config, *, complete: bool = True, purpose: Purpose = "run") -> list[str]:
    """Everything that refuses the configuration, as "key: what, what was got, what to do"."""
    return _texts(config, complete, ("fault",), purpose)


def notes(config: Config, *, complete: bool = True, purpose: Purpose = "run") -> list[str]:
    """What is allowed but probably not meant."""
    return _texts(config, complete, ("note", "unused"), purpose)


def _texts(config: Config, complete: bool, levels: Sequence[str], purpose: Purpose) -> list[str]:
    data = config.model_dump()
    found = [f for f in check(config, complete, purpose=purpose) if f.level in levels]
    return [f"{dotted(fault.path, data)}: {fault.text}" for fault in found]


def check(
    config: Config, complete: bool = True, gpus: int | None = None, purpose: Purpose = "run"
) -> list[Fault]:
    """All faults and notes, in the order of the schema. ``gpus``: of a machine, None: of this.

    ``purpose``: what the configuration is for. A run wants what its method asks for; the commands
    that ask members without a run (``mix``, ``judge``, ...) want no duels and no instructions.
    """
    machine = count_gpus() if gpus is None else gpus
    duels = purpose == "run" and config.method == "sparta"
    learning = purpose == "run" and config.method != "moaa" and trains(config)
    return list(
        chain(
            _pool_size(config, complete) if duels else _pool_there(config, complete),
            _names(config),
            _weights(config),
            check_served(config, duels=learning, judges=duels or purpose == "judge"),
            check_vllm(config, here=gpus is None),
            check_rewards(config),
            _recruits(config),
            _duels(config) if duels else (),
            _instructions(config, complete) if purpose == "run" else (),
            _judging(config),
            check_unused(config) if duels else (),
            check_moaa(config) if purpose == "run" and config.method == "moaa" else (),
            chain(check_methods(config), check_rival(config)) if purpose == "run" else (),
            check_loss(config) if purpose == "run" else (),
            check_command(config, purpose) if purpose != "run" else check_whole(config),
            _lengths(config),
            _tasks(config),
            check_tasks(config, purpose),
            check_devices(config, machine, here=gpus is None),
            check_sharing(config, complete),
            chain(check_guards(config), check_tracking(config)) if purpose == "run" else (),
        )
    )


def _duels(config: Config) -> Iterator[Fault]:
    """What only duels ask for."""
    yield from _judges(config)
    yield from _learners(config)
    yield from _reputations(config)


def _recruit_names(config: Config) -> list[str]:
    return list(config.pool.recruit.specialists) if config.pool.recruit else []


def _with_role(config: Config, role: str) -> list[str]:
    """Names in pool order; recruits have every role."""
    own = [member.name for member in config.pool.members if role in member.roles]
    return own + _recruit_names(config)


def _pool_size(config: Config, complete: bool) -> Iterator[Fault]:
    names = _with_role(config, "contest")
    if not config.pool.members and not config.pool.recruit:
        yield Fault(
            ("pool", "members"),
            "the pool is empty; a duel needs two contestants and a judge: list members here, "
            "or add a pool with pool=FILE.yaml",
            "fault" if complete else "note",
        )
    elif len(names) < 2:
        got = f"1: {names[0]}" if names else "none"
        yield Fault(("pool", "members"), f"a duel needs two contestants, got {got}")


def _pool_there(config: Config, complete: bool) -> Iterator[Fault]:
    if not config.pool.members and not config.pool.recruit:
        text = "the pool is empty; list members here, or add a pool with pool=FILE.yaml"
        yield Fault(("pool", "members"), text, "fault" if complete else "note")


def _names(config: Config) -> Iterator[Fault]:
    for position, member in enumerate(config.pool.members):
        if member.name in RESERVED:
            yield Fault(("pool", "members", position, "name"), _reserved(member.name))
    for name, count in Counter(member.name for member in config.pool.members).items():
        if count > 1:
            yield Fault(("pool", "members"), f"the name {name} is given to {count} members")
    folded = Counter(member.name.lower() for member in config.pool.members)
    for lower, count in folded.items():
        same = sorted({m.name for m in config.pool.members if m.name.lower() == lower})
        if count > 1 and len(same) > 1:
            words = " and ".join(same)
            yield Fault(("pool", "members"), f"{words} differ only in case; folders may not")


def _reserved(name: str) -> str:
    known = {"none": "nobody", MAJORITY: "a vote", BEST_OF: "the best of several answers"}
    known |= dict.fromkeys(TOGETHER, "the method of that name")
    meant = known.get(name, "a mixture")
    return f"{name} is what settings and results call {meant}; give the member another name"


def _weights(config: Config) -> Iterator[Fault]:
    base, members = config.pool.base, config.pool.members
    if base is not None:
        scripted = bool(members) and all(member.engine == "scripted" for member in members)
        if problem := _script_problem(base) if scripted else base_problem(base):
            yield Fault(("pool", "base"), problem)
    for position, member in enumerate(members):
        path: Path = ("pool", "members", position)
        if member.engine == "openai":
            continue  # its weights are elsewhere: rules_served
        if member.engine == "reward":
            yield from _reward_weights(member, path)
            continue
        if member.engine == "scripted":
            if member.model is not None and (problem := _script_problem(member.model)):
                yield Fault((*path, "model"), problem)
            continue
        if member.model is None and base is None:
            text = f"{member.name} has no model and there is no pool.base; give one of the two"
            yield Fault(path, text)
        elif member.model is not None and (problem := base_problem(member.model)):
            yield Fault((*path, "model"), problem)
        if member.adapter is not None and (problem := _adapter_problem(member, config)):
            yield Fault((*path, "adapter"), problem)


def _reward_weights(member: MemberSettings, path: Path) -> Iterator[Fault]:
    """A reward model is a head of its own, never the base of the pool."""
    if member.model is None or member.model.startswith("builtin:"):
        got = "no model" if member.model is None else member.model
        yield Fault(
            (*path, "model"),
            f"{member.name} is a reward model and has {got}; expected a sequence classification "
            "model: a folder, or a hub id such as org/name",
        )
    elif problem := base_problem(member.model):
        yield Fault((*path, "model"), problem)
    if member.adapter is not None:
        text = f"{member.name} is a reward model, which has no adapter; remove it"
        yield Fault((*path, "adapter"), text)


def _script_problem(model: str) -> str | None:
    """What is wrong with the name of a script, or None."""
    name = model.removeprefix("script:")
    if name == model:
        return f"{model!r} is not a script; a scripted member has model: script:FILE.yaml, or none"
    if name == "default" or FilePath(name).expanduser().is_file():
        return None
    return f"there is no script {name!r} (looked beside the configuration, then here)"


def base_problem(model: str) -> str | None:
    """What is wrong with the name of a base, or None. The hub is not asked."""
    if model.startswith("builtin:"):
        name = model.removeprefix("builtin:")
        if name in BUILTIN_BASES:
            return None
        known = [f"builtin:{base}" for base in BUILTIN_BASES]
        return f"there is no base {model!r}; {did_you_mean(model, known)}"
    if model.startswith("script:"):
        return f"{model!r} is a script; it goes with engine: scripted"
    if model.startswith("hub:"):
        model = model.removeprefix("hub:")
        return None if HUB_ID.fullmatch(model) else f"{model!r}: expected hub:org/name"
    path = FilePath(model).expanduser()
    if path.is_dir():
        return None if (path / "config.json").is_file() else _no_config(path)
    if path.is_file():
        if path.suffix == ".gguf":
            return None
        return f"{model!r} is a file, but not a .gguf one; name a folder, or a .gguf file"
    if path.suffix == ".gguf" or model.startswith(("/", ".", "~")) or model.count("/") > 1:
        return f"there is no file or folder {model!r}"
    if HUB_ID.fullmatch(model):
        return None
    return (
        f"{model!r} is not builtin:NAME, a folder, a .gguf file or a hub id (org/name); "
        f"known builtin bases: {', '.join(BUILTIN_BASES)}"
    )


def _no_config(folder: FilePath) -> str:
    if (folder / "adapter_config.json").is_file():
        return f"the folder {folder} holds an adapter, not base weights; name it as adapter"
    return f"the folder {folder} has no config.json, so it is not a model"


def _adapter_problem(member: MemberSettings, config: Config) -> str | None:
    adapter = member.adapter or ""
    if adapter.startswith("hub:"):
        if HUB_ID.fullmatch(adapter.removeprefix("hub:")):
            return None
        return f"{member.name}'s adapter {adapter!r}: expected hub:org/name"
    folder = FilePath(adapter).expanduser()
    if not folder.is_dir():
        near = _adapters_near(folder, member, config)
        listed = f"adapters nearby: {', '.join(near)}" if near else "no adapters nearby"
        match = closest(folder.name, [FilePath(name).name for name in near])
        meant = f"; did you mean {match}?" if match else ""
        return (
            f"{member.name}'s adapter {adapter!r} is neither a folder nor hub:org/name; "
            f"{listed}{meant}"
        )
    if not (folder / "adapter_config.json").is_file():
        return f"{member.name}'s adapter folder {adapter} has no adapter_config.json"
    if not list(folder.glob("*.safetensors")):
        return (
            f"{member.name}'s adapter folder {adapter} has no .safetensors file "
            "(other formats are not loaded: they can run code)"
        )
    broken = [file for file in sorted(folder.glob("*.safetensors")) if not _has_header(file)]
    if broken:
        size = broken[0].stat().st_size
        return (
            f"{member.name}'s adapter: {broken[0]} is not a safetensors file ({size} bytes; cut "
            "off, or a pointer of Git LFS?)"
        )
    return None


def _has_header(file: FilePath) -> bool:
    """Whether a safetensors file is as long as its first eight bytes say, at least."""
    with file.open("rb") as opened:
        head = opened.read(8)
        length = int.from_bytes(head, "little") if len(head) == 8 else 0
        return 2 <= length <= file.stat().st_size - 8 and opened.read(1) == b"{"


def _adapters_near(folder: FilePath, member: MemberSettings, config: Config) -> list[str]:
    """Adapter folders beside the one named, and those of the other members."""
    found: dict[str, None] = {}
    others = [m.adapter for m in config.pool.members if m.adapter and m.name != member.name]
    for parent in [folder.parent, *(FilePath(other).parent for other in others)]:
        if parent.is_dir():
            for config_file in sorted(parent.glob("*/adapter_config.json"))[:10]:
                found[str(config_file.parent)] = None
    return list(found)


def _recruits(config: Config) -> Iterator[Fault]:
    recruit = config.pool.recruit
    if recruit is None:
        return
    path: Path = ("pool", "recruit")
    if config.pool.base is None:
        yield Fault(path, "recruits are made from pool.base, which is missing")
    members = {member.name for member in config.pool.members}
    if not recruit.specialists:
        yield Fault((*path, "specialists"), "names nobody; expected member name: [domain, ...]")
    for name, domains in recruit.specialists.items():
        below = (*path, "specialists", name)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
            yield Fault(below, f"{name!r} is not a short name of letters, digits, dot, dash, _")
        if name in RESERVED:
            yield Fault(below, _reserved(name))
        if name in members:
            yield Fault(below, f"{name} is already the name of a member")
        if not domains:
            yield Fault(below, "learns no domain; expected a list of at least one")
    if problem := table_problem(recruit.data, hub=False):
        yield Fault((*path, "data"), problem)


def _judges(config: Config) -> Iterator[Fault]:
    """Every possible duel must leave a judge who is not in it."""
    contestants, judges = _with_role(config, "contest"), _with_role(config, "judge")
    if len(contestants) < 2:
        return
    worst = min(
        combinations(contestants, 2), key=lambda duel: len([j for j in judges if j not in duel])
    )
    left = [judge for judge in judges if judge not in worst]
    if not left:
        yield Fault(
            ("pool", "members"),
            f"a duel of {worst[0]} and {worst[1]} leaves no judge (the judges are: "
            f"{', '.join(judges) or 'nobody'}); add a third member, or one with roles: [judge]",
        )
    per_duel = config.judge.per_duel
    if left and per_duel is not None and per_duel > len(left):
        text = f"asks {per_duel} judges of each duel, but some duels have only {len(left)}"
        yield Fault(("judge", "per_duel"), text, "note")


def _learners(config: Config) -> Iterator[Fault]:
    if config.train.method == "none" or not (config.pool.members or config.pool.recruit):
        return
    if not _with_role(config, "learn"):
        yield Fault(
            ("train", "method"),
            f"is {config.train.method}, but no member has the role learn; set train.method: none "
            "to stop at the pairs",
        )
    elif config.pool.recruit is None and not any(
        member.engine == "hf" and "learn" in member.roles for member in config.pool.members
    ):
        engines = sorted({member.engine for member in config.pool.members} - {"hf"})
        kind = {
            "scripted": "scripted",
            "openai": "behind an endpoint",
            "reward": "a reward model",
        }
        words = " or ".join(kind[engine] for engine in engines)
        text = (
            f"is {config.train.method}, but every learner is {words} and has no weights to train: "
            "no training"
        )
        yield Fault(("train", "method"), text, "note")


def _instructions(config: Config, complete: bool) -> Iterator[Fault]:
    section, source = source_of(config)
    path: Path = (section, "source")
    pairs = section == "preference_file"
    if not source and not pairs and "instructions" not in USES[config.method]:
        return  # the method asks for none
    if not source:
        text = f"names no {'pairs' if pairs else 'instructions'}; expected a JSONL, CSV or Parquet "
        text += "file, or hub:org/name" if pairs else "file, hub:org/name, or builtin:skills"
        yield Fault(path, text, "fault" if complete else "note")
    elif pairs and source.startswith("builtin:"):
        yield Fault(path, f"{source!r} has no pairs; expected a file, or hub:org/name")
    elif problem := table_problem(source, hub=True):
        yield Fault(path, problem)


def table_problem(source: str, *, hub: bool) -> str | None:
    """What is wrong with the name of a table of rows, or None; ``hub``: data sets too."""
    expected = f"a {', '.join(TABLES[:-1])} or {TABLES[-1]} file"
    if source.startswith("builtin:"):
        known = [f"builtin:{name}" for name in BUILTIN_INSTRUCTIONS]
        return None if source in known else f"{source!r}: {did_you_mean(source, known)}"
    if source.startswith("hub:"):
        if hub and HUB_DATA.fullmatch(source.removeprefix("hub:")):
            return None
        return f"{source!r}: expected {'hub:org/name' if hub else expected}"
    path = FilePath(source).expanduser()
    if path.is_dir():
        return None if hub else f"{source!r} is a folder; expected {expected}"
    if not path.is_file():
        from_hub = HUB_ID.fullmatch(source) and path.suffix.lower() not in TABLES
        hint = f"; a hub data set is written hub:{source}" if from_hub else ""
        return f"there is no file {source!r} (looked beside the configuration, then here){hint}"
    if path.suffix.lower() not in TABLES:
        return f"{source!r} is not {expected}"
    return None


def _judging(config: Config) -> Iterator[Fault]:
    judge = config.judge
    if judge.low >= judge.high:
        text = f"the lowest score {judge.low} is not below the highest {judge.high} (judge.high)"
        yield Fault(("judge", "low"), text)
    if judge.protocol == "likelihood" and getattr(config.reputation, "fade", "none") != "none":
        text = (
            "the fade-out multiplies scores, and log-likelihoods are negative: it would lift those "
            "it is to fade; use none, or another judge.protocol"
        )
        yield Fault(("reputation", "fade"), text)
    if judge.template is not None:
        if judge.protocol in ("likelihood", "reward", "moa"):
            prompts = "prompts of its own" if judge.protocol == "moa" else "no prompt"
            text = f"has no use with the {judge.protocol} protocol, which has {prompts}; remove it"
            yield Fault(("judge", "template"), text)
        elif not FilePath(judge.template).expanduser().is_file():
            yield Fault(("judge", "template"), f"there is no file {judge.template!r}")
    if config.aggregate.anchors != "none" and config.aggregate.rule != "one_coin":
        text = "reliability is estimated with them; only aggregate.rule: one_coin weighs by it"
        yield Fault(("aggregate", "anchors"), text, "note")
    if "reputation" in config.without and config.aggregate.rule == "one_coin":
        text = "one_coin weighs judges by reliability; without reputation has no effect on it"
        yield Fault(("aggregate", "rule"), text, "note")


def _reputations(config: Config) -> Iterator[Fault]:
    rule = config.reputation
    floor = getattr(rule, "floor", 0.0)
    if rule.initial < floor:
        text = f"everybody starts at {rule.initial:g}, below the floor of {floor:g}"
        yield Fault(("reputation", "initial"), text)
    for position, member in enumerate(config.pool.members):
        if member.reputation is not None and member.reputation < floor:
            text = f"{member.name} starts at {member.reputation:g}, below the floor of {floor:g}"
            yield Fault(("pool", "members", position, "reputation"), text)


def _lengths(config: Config) -> Iterator[Fault]:
    yield from prompt_leaves_room(("train",), config.train)
    if config.method == "sparta" and config.train.method == "sft":
        yield from prompt_leaves_room(("sft",), config.sft)
    if config.pool.recruit:
        yield from prompt_leaves_room(("pool", "recruit", "train"), config.pool.recruit.train)
    if config.method != "sparta":
        return  # responses have lengths of their own there: rules_moaa, rules_methods
    if config.train.method != "none":
        longest = config.answer.max_new_tokens
        yield from holds(
            config.pair_section, config.pair_training, "answer.max_new_tokens", longest
        )


def _tasks(config: Config) -> Iterator[Fault]:
    evaluate = config.evaluate
    for name, count in Counter(task.name for task in evaluate.tasks).items():
        if count > 1:
            text = f"the name {name} is given to {count} tasks"
            yield Fault(("evaluate", "tasks"), text)
    for position, task in enumerate(evaluate.tasks):
        path = ("evaluate", "tasks", position, "source")
        if task.source.startswith("lm-eval:"):
            text = f"{task.source!r} is not read here; give it to phalanx eval --task {task.source}"
            yield Fault(path, text)
        elif problem := table_problem(task.source, hub=True):
            yield Fault(path, problem)
    if evaluate.tasks and evaluate.dev_share >= 1:
        text = f"{evaluate.dev_share:g} leaves no items to report results on; use less than 1"
        yield Fault(("evaluate", "dev_share"), text)
