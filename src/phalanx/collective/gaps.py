"""What to say where too many judgments are missing: requests that failed, or words unread."""

from __future__ import annotations

from collections.abc import Sequence

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


def too_many(
    gaps: Sequence[Judgment], missing: int, asked: int, config: Config, what: str = "judgments"
) -> str:
    """The message of an error: ``missing`` of ``asked`` are, ``gaps`` are among them."""
    failed = [gap for gap in gaps if has_failed(gap)]
    mostly = failed if 2 * len(failed) > len(gaps) else [gap for gap in gaps if gap not in failed]
    reasons = sorted({gap.reason for gap in mostly if gap.reason})
    example = "; ".join(reasons[:3]) or "see phalanx export RUN responses"
    limit = f"limit {config.judge.max_unreadable:.0%}"
    if mostly and mostly == failed:
        return (
            f"{missing} of {asked} {what} are missing ({limit}), and most of them since requests "
            f"failed, for example: {example}. Mend that and start again: failed requests are asked "
            "again, the other responses are kept"
        )
    also = "; requests that failed are asked again next time" if failed else ""
    return (
        f"{missing} of {asked} {what} could not be read ({limit}), for example: {example}. "
        f"{_advice(gaps, config)} (with another --out), or raise judge.max_unreadable and go on "
        f"here; the responses are kept{also}"
    )


def _advice(gaps: Sequence[Judgment], config: Config) -> str:
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
