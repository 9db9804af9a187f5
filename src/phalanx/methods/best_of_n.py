"""Best of n: several answers of one member, of which a judge chooses one.

The usual way to use a reward model at inference (best-of-n sampling, as in Nakano et al., arXiv
2112.09332); with a council of judges instead of a reward model it is what a pool can do by itself.
It assumes a judge that tells the better answer of two by the same writer.

What is ours: the answerer is the best of the pool on the dev items before the run, unless
``best_of_n.member`` names one. ``best_of_n.judge`` is a reward model, or a member that judges by
``judge.protocol``; with none, every judge but the answerer ranks all answers and has one voice for
the one that it likes best, and ``judge.quorum`` of them must have one (with ``judge.protocol: moa``
the panel of ``reward`` is the one judge).
Answers of the same words are one. Judges that compare see every pair, so 2 x n (n - 1) / 2 requests
a question each; those that score (``rubric``, ``expected``, ``likelihood``, reward models) n.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx import pool
from phalanx.collective.choosing import by_voices, candidate, shown_to_judges
from phalanx.config.mixing import choosers_of, panel_chooses
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.methods.answering import counted, first_answers, no_longer, one_member, reached
from phalanx.methods.method import Method, Question, Reached
from phalanx.types import Ask, Member, Request, Response, Sampling


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
    """See :class:`phalanx.methods.Answer`. Raises ConfigError where nobody can choose."""
    settings = config.best_of_n
    member = one_member(settings.member, best, members, "best_of_n.member")
    every = [judge.name for judge in pool.judges(members)]
    judges = choosers_of(config, member.name, every)
    if not judges:
        panel = "on the panel of reward" if panel_chooses(config) else ""
        asked = panel or settings.judge or ", ".join(every) or "nobody"
        raise ConfigError(
            f"best_of_n: nobody can choose among the answers of {member.name}, since nobody judges "
            f"an answer of their own (who judges: {asked}); name another judge, or another member "
            "in best_of_n.member"
        )
    sample = no_longer(settings.sample, want)
    sampled = first_answers(questions, [member], sample, ask, place=place, samples=settings.samples)
    groups = [
        (
            shown_to_judges(question.turns),
            [candidate(f"{member.name}#{at}", reply) for at, reply in enumerate(replies, start=1)],
        )
        for question, replies in zip(questions, sampled, strict=True)
    ]

    def ask_judges(phase: str, requests: Sequence[Request]) -> list[Response]:
        return ask(f"evaluate {phase}", requests)

    chosen, _ = by_voices(
        groups, judges, members, ask_judges, config, place=(config.seed, *place, "best_of_n")
    )
    names = [member.name] * settings.samples
    return [
        reached(one.at, replies, names, one.reason, counted(replies) | one.counts)
        for one, replies in zip(chosen, sampled, strict=True)
    ]


METHOD = Method(
    title="a reward model, or a council of judges, chooses among one member's answers",
    paper="Nakano et al. 2021, arXiv 2112.09332 (with a reward model; the council is ours)",
    kind="answer",
    answer=answer,
)
