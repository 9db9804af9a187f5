"""A mixture of agents as a method: what ``phalanx mix`` does, measured as a rival.

Mixture-of-Agents (arXiv 2406.04692), and with one proposer and several samples Self-MoA (arXiv
2502.00674): the section ``mixture`` says who proposes and who writes, in how many layers. Nothing
here is another implementation: it is :mod:`phalanx.collective.mixture`, asked for the same requests
as with ``evaluate.mixture`` in a run of another method. The last answer is written as members write
theirs when they are measured; proposers write by their own settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.collective.mixture import Mixed, mix_as, mixture_from
from phalanx.config.schema import Config
from phalanx.methods.method import Method, Question, Reached
from phalanx.types import Ask, Member, Sampling


def answer(
    questions: Sequence[Question],
    members: Sequence[Member],
    ask: Ask,
    config: Config,
    *,
    best: str,
    want: Sampling,
    place: tuple,
) -> list[Reached]:
    """See :class:`phalanx.methods.Answer`."""
    mixture = mixture_from(config, members)
    made = mix_as(
        [question.turns for question in questions], mixture, ask, want, place=place,
        phase="evaluate",
    )  # fmt: skip
    writer = mixture.aggregator.name
    return [Reached(one.response, writer, one.reason, _counts(one)) for one in made]


def _counts(one: Mixed) -> dict[str, int]:
    bad = sum(not proposal.usable for proposal in one.proposals)
    return {"answers": len(one.proposals), "failed": bad}


METHOD = Method(
    title="an aggregator writes from layers of proposals",
    paper="Wang et al. 2024, arXiv 2406.04692; Li et al. 2025, arXiv 2502.00674",
    kind="answer",
    answer=answer,
)
