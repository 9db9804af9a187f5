"""Rules about training: lengths, all weights, settings of a way of learning that is not used."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.base import Writes
from phalanx.config.faults import Fault
from phalanx.config.keys import Path
from phalanx.config.mixing import students_of
from phalanx.config.schema import Config, OptimiserSettings, SftSettings, TrainSettings
from phalanx.config.uses import sections_learned

PROMPT_ROOM = 64
"""Tokens that a short prompt takes; only used to warn."""
OF_PAIRS = ("method", "scope", "label_noise")
"""What the section `train` says of pairs, however they are learned."""


def check_learned(config: Config) -> Iterator[Fault]:
    """Settings of the way of learning that is not used."""
    if config.train.method != "sft":
        if config.sft != SftSettings():
            text = "has no use in a run of method: sparta unless train.method is sft"
            yield Fault(("sft",), text, "note")
        return
    given, usual = config.train, TrainSettings()
    unused = [
        key
        for key in TrainSettings.model_fields
        if key not in OF_PAIRS and getattr(given, key) != getattr(usual, key)
    ]
    if unused:
        text = f"sft learns with the settings of the section sft; {', '.join(unused)} have no use"
        yield Fault(("train", "method"), text, "note")
    if config.pairs.weight_by_margin:
        text = "has no use with train.method: sft, where every chosen response weighs the same"
        yield Fault(("pairs", "weight_by_margin"), text, "note")


def can_differ(path: Path, settings: Writes, count: int, what: str, advice: str) -> Iterator[Fault]:
    """``count`` texts by the same settings, written for the same prompt, are to differ."""
    if count > 1 and settings.temperature == 0:
        text = f"is 0 (greedy), so the {count} {what} are all the same; {advice}"
        yield Fault((*path, "temperature"), text)


def margin_is_reached(config: Config, most: float, why: str) -> Iterator[Fault]:
    """``why`` says what margins are, which are at most ``most``."""
    if config.pairs.margin > most:
        text = f"is {config.pairs.margin:g}; {why} {most:g}, so none would be left; lower it"
        yield Fault(("pairs", "margin"), text)


def prompt_leaves_room(path: Path, settings: OptimiserSettings) -> Iterator[Fault]:
    """A prompt as long as it may be, and still a response."""
    prompt, total = settings.max_prompt_length, settings.max_length
    if prompt is not None and prompt >= total:
        yield Fault(
            (*path, "max_prompt_length"),
            f"a prompt of {prompt} tokens leaves no room for a response within max_length "
            f"{total}; make max_prompt_length smaller or max_length larger",
        )


def holds(
    section: str, settings: OptimiserSettings, key: str, written: int, shown: int = 0
) -> Iterator[Fault]:
    """A response as long as ``key`` lets it be, ``written`` tokens, and a short prompt, in which
    so many ``shown`` responses of that length stand."""
    if settings.max_length < written * (1 + shown) + PROMPT_ROOM:
        inside = f" with {shown} of that length in it" if shown else ""
        text = (
            f"{settings.max_length} tokens do not hold a response of {key} = {written} and its "
            f"prompt{inside}; such examples are dropped and counted"
        )
        yield Fault((section, "max_length"), text, "note")


def check_whole(config: Config) -> Iterator[Fault]:
    """What cannot be done with members that have a base of their own after training."""
    whole = _trained_whole(config)
    if not whole:
        return
    path, resources = whole[0][0], config.resources
    names = {name for _, some in whole for name in some}
    served = [m.name for m in config.pool.members if m.name in names and m.serve == "vllm"]
    if served:
        text = (
            f"full weights change the base, and a vLLM server keeps that of {', '.join(served)}; "
            "use weights: lora, or serve: here"
        )
        yield Fault(path, text)
    paired = "train" in sections_learned(config)
    in_run = any(path[0] != "pool" for path, _ in whole)
    if paired and in_run and config.train.reference == "initial":
        text = (
            "is initial, but full weights change the base, and the one before the run is not kept "
            "in memory; use reference: start, or weights: lora"
        )
        yield Fault(("train", "reference"), text)
    if resources.executor == "ray" and resources.ray.adapters == "store":
        text = (
            "full weights are too large for Ray's object store; set resources.ray.adapters: "
            "folder, with the run's folder where every node sees it, or use weights: lora"
        )
        yield Fault(path, text)


def _trained_whole(config: Config) -> list[tuple[Path, list[str]]]:
    """(key, members) of every training of all weights."""
    members = [m.name for m in config.pool.members if m.engine == "hf" and "learn" in m.roles]
    recruit, found = config.pool.recruit, list[tuple[Path, list[str]]]()
    if recruit and recruit.train.is_full:
        found.append((("pool", "recruit", "train", "weights"), list(recruit.specialists)))
    if config.method == "moaa":
        members = [student.name for student in students_of(config)]
    for section in sections_learned(config):
        if getattr(config, section).is_full:
            found.append(((section, "weights"), members))
    return found
