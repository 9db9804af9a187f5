"""What to say where too many judgments are missing: requests that failed, or words unread."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from textwrap import shorten

from phalanx.config.mixing import MOA
from phalanx.config.schema import Config
from phalanx.types import Judgment

_OTHERS = {
    "rubric": "judge.protocol: expected or likelihood",
    "pairwise": "judge.protocol: expected or likelihood",
    "expected": "judge.protocol: rubric or likelihood",
    "likelihood": "judge.protocol: rubric or pairwise",
}


def has_failed(judgment: Judgment) -> bool:
    """Whether a judgment is missing since a request failed, and not for what was answered.

    Of the mixture's, an evaluation that failed is left out; it counts where no verdict was asked.
    """
    if judgment.readable:
        return False
    said = {slot: value for slot, value in judgment.raw.items() if slot != "criteria"}
    verdicts = [value for slot, value in said.items() if ".assess." not in slot]
    # A text is a string, so that no model can write what looks like a failure.
    return any(isinstance(value, dict) and "error" in value for value in verdicts or said.values())


def unreadable_limit(config: Config) -> tuple[float, str]:
    """The share of judgments of a run that may be unreadable, and the key that sets it."""
    if config.guard.max_unreadable is None:
        return config.judge.max_unreadable, "judge.max_unreadable"
    return config.guard.max_unreadable, "guard.max_unreadable"


def too_many(
    gaps: Sequence[Judgment],
    missing: int,
    asked: int,
    config: Config,
    what: str = "judgments",
    limited: tuple[float, str] | None = None,
    proposed: float | None = None,
) -> str:
    """The message of an error: ``missing`` of ``asked`` are, ``gaps`` are among them.

    ``limited``: the limit of a run, and its key; a command has ``judge.max_unreadable``.
    ``proposed``: a limit that lets it pass, where that is not the share that is missing.
    """
    most, key = limited or (config.judge.max_unreadable, "judge.max_unreadable")
    failed = [gap for gap in gaps if has_failed(gap)]
    mostly = failed if 2 * len(failed) > len(gaps) else [gap for gap in gaps if gap not in failed]
    # A server may have answered with a page; the message is one line, and to be read.
    reasons = sorted({shorten(gap.reason, 200) for gap in mostly if gap.reason})
    example = "; ".join(reasons[:3]) or "see phalanx export RUN responses"
    limit = f"limit {100 * most:.3g}%"
    command = "phalanx run CONFIG" if limited else "the same command with"
    on = f"go on here: {command} {key}={above(proposed or missing / asked)}"
    if mostly and mostly == failed:
        return (
            f"{missing} of {asked} {what} are missing ({limit}), and most of them since requests "
            f"failed, for example: {example}. Mend that and start again: failed requests are asked "
            f"again, the other responses are kept; or {on}"
        )
    also = "; requests that failed are asked again next time" if failed else ""
    return (
        f"{missing} of {asked} {what} could not be read ({limit}), for example: {example}. "
        f"{advice(gaps, config)} (with another --out), or {on}; the responses are kept{also}"
    )


def above(value: float) -> str:
    """The smallest number of two figures that is not below the value: a limit that lets it pass.

    >>> above(0.508), above(0.51), above(1), above(12.31), above(0.02341)
    ('0.51', '0.51', '1', '13', '0.024')
    """
    exact = Decimal(repr(float(value)))
    if not exact:
        return "0"
    step = Decimal(1).scaleb(exact.adjusted() - 1)
    return f"{float((exact / step).to_integral_value(ROUND_CEILING) * step):g}"


def advice(gaps: Sequence[Judgment], config: Config) -> str:
    """What else than the limit to change."""
    if config.method in ("self_rewarding", "meta_rewarding"):
        seed = ", demonstrations of judging (self_rewarding.judge_seed)"
        return (
            f"Use members that follow the rubric{seed if config.method == 'self_rewarding' else ''}"
            f" or more tokens ({config.method}.judge.max_new_tokens)"
        )
    protocols = {gap.protocol for gap in gaps} or {config.judge.protocol}
    if MOA in protocols:
        other = "" if config.reward.verdict == "options" else ", reward.verdict: options"
        return f"Use a reward.aggregator that follows the prompt{other}"
    if protocols == {"reward"}:
        return "Use another reward model"
    if protocols == {"likelihood"}:
        return f"Use {_OTHERS['likelihood']}"
    other = _OTHERS.get(config.judge.protocol, _OTHERS["rubric"])
    return f"Use a judge that follows the prompt, {other}"
