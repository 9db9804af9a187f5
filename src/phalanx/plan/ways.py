"""An impossible plan: how much is missing, and what would work instead (tried, not guessed)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from phalanx.config.faults import Fault
from phalanx.config.schema import Config
from phalanx.config.uses import sections_learned
from phalanx.plan.machines import CARDS, GB, Machine, in_words
from phalanx.plan.memory import BasePlan, bases_of, longest_request
from phalanx.plan.placement import Placement, Wave, place
from phalanx.plan.rounds import Round, fully_trained
from phalanx.plan.sizes import Size
from phalanx.plan.stages import rounds_of
from phalanx.plan.units import tensor_parallel, units_of
from phalanx.plan.work import trained
from phalanx.types import Member

AT_MOST = 3
"""Ways out that a message names."""
DOING = {
    "recruit": "make recruits of",
    "serve": "serve",
    "tune": "fine-tune",
    "train": "train",
}


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a placement follows from; a way out changes one thing."""

    config: Config
    members: tuple[Member, ...]
    machine: Machine
    instruction_tokens: int
    size: Size | None = None
    turns: float = 1.0
    available: int | None = None
    sizes: dict[str, Size] = field(default_factory=dict, compare=False, repr=False)
    """Of bases looked at so far, by all that differ from this in something else."""

    def rounds(self) -> tuple[Round, ...]:
        return rounds_of(
            self.config, self.members, self.instruction_tokens, self.turns, self.available
        )

    def bases(self) -> list[BasePlan]:
        units = units_of(self.config, self.machine)
        apart = fully_trained(self.rounds())
        return bases_of(self.members, units.dtype_width, self.size, apart, self.sizes)

    def placement(self) -> Placement:
        units = units_of(self.config, self.machine)
        tokens = self.instruction_tokens
        return place(self.config, self.members, self.bases(), units, self.rounds(), tokens)

    def with_settings(self, section: str, **changes: object) -> Question:
        part = getattr(self.config, section).model_copy(update=changes)
        return replace(self, config=self.config.model_copy(update={section: part}))

    def frozen(self, names: frozenset[str], engine: str = "") -> Question:
        """Those members keep their weights as they are."""
        roles = ("contest", "judge")
        members = tuple(
            replace(m, roles=tuple(r for r in m.roles if r in roles), engine=engine or m.engine)
            if m.name in names
            else m
            for m in self.members
        )
        return replace(self, members=members)

    def with_members(self, **changes: str) -> Question:
        return replace(self, members=tuple(replace(m, **changes) for m in self.members))


def certain_faults(question: Question) -> Iterator[Fault]:
    """Faults that no estimate is needed for: counted weights larger than the whole memory."""
    placement = question.placement()
    machine, card = placement.units.machine, placement.units.card
    memory = card.memory if card else machine.memory
    for wave in placement.waves:
        weights = sum(held.base.weights for held in wave.held)
        guessed = any(held.base.guessed for held in wave.held)
        if memory and not guessed and not wave.server and wave.room and weights > memory:
            yield Fault(("pool",), _refusal(question, placement, wave))


def memory_faults(question: Question, placement: Placement) -> Iterator[Fault]:
    """A fault for every wave that does not fit, and for servers that cannot start."""
    settings, machine = question.config, placement.units.machine
    split = tensor_parallel(settings)
    if any(wave.server for wave in placement.waves) and split > max(1, machine.gpus):
        text = f"--tensor-parallel-size {split}, but there is room for {max(1, machine.gpus)}"
        yield Fault(("vllm", "arguments"), text)
    for wave in placement.waves:
        if not wave.fits:
            yield Fault(("pool",), _refusal(question, placement, wave))


def _refusal(question: Question, placement: Placement, wave: Wave) -> str:
    room = wave.room or 0
    who = " and ".join(held.base.base for held in wave.held)
    text = (
        f"no room to {DOING[wave.phase]} {who}{' by vLLM' if wave.server else ''}: needs "
        f"{gigabytes(wave.needed)} ({parts(wave)}), available: {gigabytes(room)}"
        f"{_of_what(placement, wave)}"
    )
    found = [words for words, other in _candidates(question, wave) if _helps(other, wave)]
    if found:
        return f"{text}. What would work: {'; or '.join(found[:AT_MOST])}"
    return f"{text}. Use a smaller base, or members behind an endpoint (engine: openai)"


def _of_what(placement: Placement, wave: Wave) -> str:
    units = placement.units
    words = f" of {units.machine.words}"
    if wave.server:
        return f" to the server{words}"
    if units.count > 1:
        words = f" for each of {units.count} workers{words}"
    if wave.beside:
        what = "the base that answers" if wave.scores else "vLLM"
        words += f", beside {gigabytes(wave.beside)} that {what} holds"
    return words


def parts(wave: Wave) -> str:
    """``weights 15.2 GB, adapters 0.8 GB, 4 requests at once 1.2 GB``."""
    batch = max(wave.held, key=lambda held: held.batch)
    noun = "request" if wave.phase == "serve" else "example"
    adapters = "adapters" if wave.phase == "serve" else "adapter and optimiser"
    if any(held.whole for held in wave.held):
        adapters = "gradients and optimiser"
    sums = [
        ("weights", sum(held.weights for held in wave.held)),
        (adapters, sum(held.adapters for held in wave.held)),
        ("cache" if wave.server else f"a batch of {in_words(batch.rows, noun)}", batch.batch),
    ]
    return ", ".join(f"{words} {gigabytes(count)}" for words, count in sums if count)


def _helps(other: Question, wave: Wave) -> bool:
    """Whether, so changed, the bases of this wave fit in that phase."""
    bases = {held.base.base for held in wave.held}
    waves = [
        found
        for found in other.placement().of(wave.phase)
        if bases & {held.base.base for held in found.held}
    ]
    return all(found.fits for found in waves)


def _candidates(question: Question, wave: Wave) -> Iterator[tuple[str, Question]]:
    """Changes in the order in which one would try them: settings, precision, another device."""
    resources = question.config.resources
    if resources.keep_all_loaded and len(wave.held) > 1:
        changed = question.with_settings("resources", keep_all_loaded=False)
        yield "resources.keep_all_loaded: false (the bases take turns)", changed
    for count in range(units_of(question.config, question.machine).count - 1, 0, -1):
        if resources.executor == "ray":
            ray = resources.ray.model_copy(update={"workers": count})
            words, changes = f"resources.ray.workers: {count}", {"ray": ray}
        else:
            words, changes = f"resources.workers: {count}", {"workers": count}
        changed = question.with_settings("resources", **changes)
        if _helps(changed, wave):
            yield words, changed
            break
    yield from _beside_a_server(question, wave)
    yield from _smaller_batches(question, wave)
    if any(held.base.width == 4 for held in wave.held):
        # On a processor without the instructions bfloat16 works too, slowly.
        yield "dtype: bfloat16 for its members", question.with_members(dtype="bfloat16")
    if resources.merge_adapters and not wave.server:
        words = "resources.merge_adapters: false (no untouched copy; slower)"
        yield words, question.with_settings("resources", merge_adapters=False)
    if resources.workers == 1:
        yield from _other_devices(question, wave)
    yield from _other_weights(question, wave)


def _section(question: Question, wave: Wave) -> str:
    """The section of the configuration that says how a phase trains, or ""."""
    learned = sections_learned(question.config)
    last = next((name for name in learned if name != "sft"), question.config.pair_section)
    return {"tune": "sft", "train": last}.get(wave.phase, "")


def _other_weights(question: Question, wave: Wave) -> Iterator[tuple[str, Question]]:
    """Adapters instead of whole weights; members that no longer learn, in duels at least."""
    names = frozenset(name for held in wave.held for name in held.members)
    part = _section(question, wave)
    if part and getattr(question.config, part).is_full:
        settings = getattr(question.config, part).model_copy(update={"weights": "lora"})
        changed = question.config.model_copy(update={part: settings})
        yield f"{part}.weights: lora", replace(question, config=changed)
    if names & {member.name for member in trained(question.config, question.members)} and (
        question.config.method == "moaa"
    ):
        return  # a student that does not learn is none
    if wave.phase == "train":
        yield "its members without the role learn (roles: [contest, judge])", question.frozen(names)
    for split in (2, 4, 8):
        if split > question.machine.gpus or wave.server:
            return
        arguments = ["--tensor-parallel-size", str(split)]
        changed = question.with_settings("vllm", arguments=arguments).frozen(names, "vllm")
        if _helps(changed, wave):
            words = f"serve: vllm and roles: [contest, judge], split over {split} GPUs"
            yield f"{words} (vllm.arguments: [{', '.join(arguments)}])", changed
            return


def _beside_a_server(question: Question, wave: Wave) -> Iterator[tuple[str, Question]]:
    """A device that a vLLM server has most of."""
    vllm = question.config.vllm
    if not wave.beside or wave.scores:
        return
    if wave.phase == "train" and vllm.between_phases == "keep":
        yield "vllm.between_phases: sleep", question.with_settings("vllm", between_phases="sleep")
    if wave.phase == "serve":
        yield "serve: vllm for every member", question.with_members(engine="vllm")
    for share in ("0.7", "0.5", "0.3"):
        arguments = ["--gpu-memory-utilization", share]
        changed = question.with_settings("vllm", arguments=arguments)
        if _helps(changed, wave) and all(w.fits for w in changed.placement().of("serve")):
            yield f"vllm.arguments: [{', '.join(arguments)}]", changed
            return


def _smaller_batches(question: Question, wave: Wave) -> Iterator[tuple[str, Question]]:
    if wave.phase == "serve":
        return
    config = question.config
    recruit = config.pool.recruit
    recruiting = wave.phase == "recruit" and recruit is not None
    part = _section(question, wave)
    settings = recruit.train if recruiting and recruit else getattr(config, part)
    where = "pool.recruit.train" if recruiting else part

    def change(**changes: object) -> Question:
        changed = settings.model_copy(update=changes)
        if recruiting and recruit:
            return question.with_settings(
                "pool", recruit=recruit.model_copy(update={"train": changed})
            )
        return replace(question, config=config.model_copy(update={part: changed}))

    batch, length = settings.batch_size, settings.max_length
    smaller = _first(wave, _halves(batch), lambda size: change(batch_size=size))
    if smaller:
        times = settings.accumulate * batch // smaller
        words = f"{where}.batch_size: {smaller} with {where}.accumulate: {times}"
        yield words, change(batch_size=smaller, accumulate=times)
    shorter = _first(
        wave, [size for size in _halves(length) if size >= 256],
        lambda size: change(max_length=size, batch_size=1),
    )  # fmt: skip
    if shorter and not smaller:
        words = f"{where}.max_length: {shorter} with {where}.batch_size: 1"
        yield words, change(max_length=shorter, batch_size=1)


def _halves(number: int) -> list[int]:
    halves = []
    while number > 1:
        number //= 2
        halves.append(number)
    return halves


def _first(wave: Wave, sizes: Sequence[int], change: Callable[[int], Question]) -> int | None:
    return next((size for size in sizes if _helps(change(size), wave)), None)


def _other_devices(question: Question, wave: Wave) -> Iterator[tuple[str, Question]]:
    """The smallest known card that does."""
    machine = question.machine
    free = question.with_settings("resources", device="auto", gpus=None)
    for card in sorted(CARDS, key=lambda card: card.memory):
        bigger = replace(machine, card=card, gpus=max(1, machine.gpus), here=False, words=card.name)
        changed = replace(free, machine=bigger)
        if _helps(changed, wave):
            count = f"{machine.gpus}x" if machine.gpus > 1 else ""
            words = f"a GPU of {card.memory / GB:.0f} GB (--machine {count}{card.name})"
            yield words, changed
            return


def small_batches(question: Question, placement: Placement) -> Iterator[str]:
    """A note where a GPU has room for much larger batches than the settings ask for."""
    units = placement.units
    own = [wave for wave in placement.of("serve") if not wave.server]
    if not units.gpu or not own or not all(wave.fits and wave.needed for wave in own):
        return
    tokens = question.instruction_tokens
    length = longest_request(question.config, question.rounds(), tokens)
    for size in (512, 256, 128, 64):
        if size < 2 * max(held.wanted for wave in own for held in wave.held):
            return
        tokens = size * length
        larger = question.with_settings("resources", batch_size=size, batch_tokens=tokens)
        waves = [wave for wave in larger.placement().of("serve") if not wave.server]
        if all(wave.fits and all(h.rows == h.wanted for h in wave.held) for wave in waves):
            yield (
                f"resources: there is room for batches of {size} (batch_size: {size}, "
                f"batch_tokens: {tokens}), which write faster on a GPU"
            )
            return


def gigabytes(count: int) -> str:
    """``1.5 GB``, ``39 MB``."""
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 1e6:.0f} MB"
