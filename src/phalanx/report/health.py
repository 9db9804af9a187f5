"""Signs that something goes wrong, as rules: a number, its threshold, what it means, what to do.

A rule fires on what is recorded; :mod:`phalanx.thresholds` has the numbers, which guards of a run
use, too. A warning is a reason to look at responses, not a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from phalanx import thresholds as t
from phalanx.report.records import JudgeFacts, Leaning, RunFacts, TrainingFacts
from phalanx.report.words import MINUS, percent
from phalanx.statistics.shares import wilson_of_share


@dataclass(frozen=True, slots=True)
class Sign:
    """One rule that fired: ``where`` it did, the number and its threshold in words, and advice."""

    name: str
    where: str
    says: str
    value: str
    threshold: str
    advice: str

    @property
    def sentence(self) -> str:
        return f"{self.where}: {self.says} ({self.value}; threshold {self.threshold})"


@dataclass(frozen=True, slots=True)
class TrainingRule:
    """``measure`` gives the number of a training, or None where there is none to judge; the rule
    fires where it exceeds ``threshold`` (falls below it where ``below``)."""

    name: str
    measure: Callable[[TrainingFacts], float | None]
    threshold: float
    unit: str
    says: str
    advice: str
    below: bool = False

    def sign(self, training: TrainingFacts) -> Sign | None:
        value = self.measure(training)
        if value is None or (value >= self.threshold if self.below else value <= self.threshold):
            return None
        where = f"{training.member}, iteration {training.iteration}"
        return Sign(self.name, where, self.says, _with(value, self.unit),
                    _with(self.threshold, self.unit), self.advice)  # fmt: skip


def _with(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.3g} %"
    return f"{value:.3g} {unit}".replace("-", MINUS).strip()


def _last(training: TrainingFacts, signal: str) -> float | None:
    """Mean over the last quarter of the steps: one step is one batch, and varies."""
    values = training.series(signal)
    if len(values) < t.MIN_STEPS:
        return None
    return mean(values[-max(2, len(values) // 4) :])


def _first(training: TrainingFacts, signal: str) -> float | None:
    values = training.series(signal)
    if len(values) < t.MIN_STEPS:
        return None
    return mean(values[: max(2, len(values) // 4)])


def _distance(training: TrainingFacts) -> float | None:
    found = [v for s in ("kl/chosen", "kl") if (v := _last(training, s)) is not None]
    return abs(found[0]) if found else None


def _chosen_fall(training: TrainingFacts) -> float | None:
    """``kl/chosen`` is signed: the mean of log policy minus log reference on the chosen. Losses
    without a reference have means a token in ``logps/chosen``."""
    fall = _last(training, "kl/chosen")
    if fall is not None:
        return -fall
    first, last = _first(training, "logps/chosen"), _last(training, "logps/chosen")
    if first is None or last is None:
        return None
    return first - last


def _accuracy_at_once(training: TrainingFacts) -> float | None:
    values = training.series("rewards/accuracies")
    if len(values) < 2 * t.MIN_STEPS:
        return None
    return mean(values[1 : 1 + max(3, len(values) // 10)])


def _jump(training: TrainingFacts) -> float | None:
    values = training.series("grad_norm")
    if len(values) < t.MIN_STEPS or not (middle := median(values)):
        return None
    return max(values) / middle


def _length_gap(training: TrainingFacts) -> float | None:
    chosen, rejected = (training.series(f"length/{side}") for side in ("chosen", "rejected"))
    if len(chosen) < t.MIN_STEPS or not rejected or not mean(rejected):
        return None
    return mean(chosen) / mean(rejected)


def _loss_at_end(training: TrainingFacts) -> float | None:
    """Of preference training only: a demonstration may be known by heart."""
    return _last(training, "loss") if training.series("rewards/margins") else None


TRAINING_RULES = (
    TrainingRule(
        "max_kl", _distance, t.MAX_KL, "nats a token",
        "the member moved far from where it started",
        "lower the learning rate or train.epochs, or raise train.beta; read a few responses",
    ),
    TrainingRule(
        "chosen_falls", _chosen_fall, t.CHOSEN_FALLS, "nats a token",
        "even the chosen responses became less likely",
        "lower the learning rate, or raise train.nll_weight (the likelihood of the chosen); "
        "where both fall, the member forgets",
    ),
    TrainingRule(
        "accuracy_at_once", _accuracy_at_once, t.ACCURACY_AT_ONCE, "%",
        "nearly all pairs were ranked right at once",
        "something simple may tell the two apart, such as length or an ending: compare some pairs",
    ),
    TrainingRule(
        "margin_flat", lambda one: _last(one, "rewards/margins"), t.MARGIN_FLAT, "",
        "the margin of chosen over rejected stayed flat: nothing was learnt",
        "raise the learning rate or the number of pairs, or look whether judges say more than "
        "chance", below=True,
    ),
    TrainingRule(
        "loss_zero", _loss_at_end, t.LOSS_ZERO, "",
        "the loss is almost zero: the pairs are known by heart",
        "train fewer epochs, on more pairs", below=True,
    ),
    TrainingRule(
        "gradient_jump", _jump, t.GRADIENT_JUMP, "times the median",
        "one step had a much larger gradient than the others",
        "look at the longest pairs, or lower the learning rate or train.max_grad_norm",
    ),
    TrainingRule(
        "length_gap", _length_gap, t.LENGTH_GAP, "times as long",
        "chosen responses are much longer than rejected ones, so length is what is learnt",
        "see what judges favour, and pairs.max_length_ratio",
    ),
    TrainingRule(
        "clipped", lambda one: _last(one, "clip_ratio/region_mean"), t.CLIPPED, "%",
        "many tokens are clipped: steps are too large for what was sampled",
        "lower grpo.learning_rate",
    ),
)  # fmt: skip


def signs(facts: RunFacts) -> list[Sign]:
    """Every rule that fires, judging first; of trainings in the order of the run."""
    found = [sign for judge in facts.judges for sign in _judge_signs(judge)]
    found += _drift(facts)
    for training in facts.trainings:
        if training.iteration:  # recruits learn from demonstrations, and are meant to move
            found += [s for rule in TRAINING_RULES if (s := rule.sign(training))]
    return found


def _judge_signs(judge: JudgeFacts) -> Iterator[Sign]:
    if judge.asked < t.MIN_JUDGMENTS:
        return
    who = f"judge {judge.member}"
    unread = 1 - judge.readable / judge.asked
    if unread > t.MAX_UNREADABLE:
        yield Sign("max_unreadable", who, "many of its judgments could not be read",
                   f"{_with(unread, '%')} of {judge.asked:,}", _with(t.MAX_UNREADABLE, "%"),
                   "read some (phalanx export RUN judgments); judge.protocol=expected needs no "
                   "written verdict")  # fmt: skip
    if judge.flipped and judge.flipped / judge.readable > t.MAX_FLIPS:
        yield Sign("max_flips", who, "its verdict often changed with the order of the responses",
                   f"{_with(judge.flipped / judge.readable, '%')} of {judge.readable:,}",
                   _with(t.MAX_FLIPS, "%"), "it tells places, not responses, apart: leave it out "
                   "of the judges")  # fmt: skip
    if judge.longer is not None and judge.num_lengths >= t.MIN_JUDGMENTS:
        low = wilson_of_share(judge.longer, judge.num_lengths).low
        if low > t.FAVOURS_LONGER:
            yield Sign("favours_longer", who, "it favours the longer response",
                       f"{_with(judge.longer, '%')} of {judge.num_lengths:,}, at least "
                       f"{_with(low, '%')}", _with(t.FAVOURS_LONGER, "%"),
                       "longer may be better; if not, length is what members learn")  # fmt: skip
    for name, words, leaning in (
        ("favours_itself", "its own responses", judge.own),
        ("favours_family", "responses of its own family", judge.family),
    ):
        if leaning and _leans(leaning):
            yield Sign(name, who, f"it favours {words} more than the outcomes do",
                       f"{_with(leaning.share, '%')} of {leaning.n:,}, outcomes "
                       f"{_with(leaning.outcome or 0.0, '%')}",
                       f"{percent(t.FAVOURS_OWN, 0)} points more",
                       "add judges of other families")  # fmt: skip


def _leans(leaning: Leaning) -> bool:
    if leaning.outcome is None or leaning.n < t.MIN_JUDGMENTS:
        return False
    low = wilson_of_share(leaning.share, leaning.n).low
    return low > leaning.outcome and leaning.share - leaning.outcome > t.FAVOURS_OWN


def response_lengths(facts: RunFacts) -> dict[str, list[tuple[int, float]]]:
    """Member -> (iteration, mean tokens of a response) where enough were written, and counted.

    Requests that failed are no short responses.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for spent in facts.spending:
        enough = spent.answered >= t.MIN_RESPONSES and spent.tokens_out and spent.iteration
        if spent.phase in ("answer", "sample") and enough:
            point = (spent.iteration, spent.tokens_out / spent.answered)
            found.setdefault(spent.member, []).append(point)
    return found


def _drift(facts: RunFacts) -> Iterator[Sign]:
    for member, points in response_lengths(facts).items():
        (begin, before), (number, now) = points[0], points[-1]
        ratio = now / before
        if number == begin or 1 / t.LENGTH_DRIFT <= ratio <= t.LENGTH_DRIFT:
            continue
        word = "longer" if ratio > 1 else "shorter"
        yield Sign("length_drift", f"{member}, iteration {number}",
                   f"its responses became much {word}",
                   f"{before:.1f} to {now:.1f} tokens, {ratio:.2f} times",
                   f"{t.LENGTH_DRIFT:g} times, either way",
                   "see what judges favour; pairs.max_length_ratio drops pairs that differ by "
                   "length")  # fmt: skip


def by_name(found: Sequence[Sign]) -> dict[str, list[Sign]]:
    """The signs of each rule, in the order in which the rules first fired."""
    groups: dict[str, list[Sign]] = {}
    for sign in found:
        groups.setdefault(sign.name, []).append(sign)
    return groups
