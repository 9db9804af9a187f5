"""Does an answer mean the same as the gold one? Judges say yes or no, and the majority counts.

For tasks whose gold answer is one of many right ones (COM2, and rows of one's own with ``match:
judged``), where words cannot be compared. The likelier of two options after a forced beginning is
the verdict: one forward pass where probabilities can be read, and a short reply elsewhere. What
cannot be read is missing: never a yes, a no or half of either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.collective.templates import QUESTION, fence, fill, load_template
from phalanx.identity import content_id, derive_seed
from phalanx.types import Member, Message, Options, Request, Response

SAME = Options('{"same": "', ("yes", "no"))
"""Whether an answer means the same as the gold one: the likelier of the two."""
PLACEHOLDERS = ("question", "reference", "response")


@dataclass(frozen=True, slots=True)
class Grade:
    """What one judge says, or all together: ``same`` is None where that cannot be said, and
    exactly then ``reason`` says why."""

    same: bool | None
    reason: str = ""


def grade_request(question: str, gold: str, answer: str, judge: Member, *, seed: int) -> Request:
    """The request that puts ``answer`` (without reasoning) beside ``gold`` before one judge.

    Like all judges it is asked without its system prompt. The same three texts are the same
    request, whoever wrote the answer. ``seed`` is the run's: marks around texts follow from it.
    """
    marks = derive_seed("grade", seed, question, gold, answer)
    texts = {
        "question": fence(question, marks, QUESTION)[0],
        "reference": fence(gold, marks + 1, "reference")[0],
        "response": fence(answer, marks + 2, "response")[0],
    }
    message = Message("user", fill(load_template("grade", PLACEHOLDERS), texts))
    return Request(
        id=content_id("grade", judge.key, message, SAME),
        member=judge,
        messages=(message,),
        want=SAME,
        purpose="grade",
        seed=derive_seed("grade", judge.key, marks),
        shortenable=(answer,),
    )


def read_grade(response: Response) -> Grade:
    """One judge's verdict; none where the request failed, or both options are as likely.

    >>> read_grade(Response("r", probabilities={"yes": 0.7, "no": 0.3}))
    Grade(same=True, reason='')
    """
    if response.error is not None:
        return Grade(None, response.error.kind)
    if not response.probabilities:
        return Grade(None, "no probabilities")
    yes, no = (response.probabilities.get(option, 0.0) for option in SAME.options)
    if not (math.isfinite(yes + no) and yes + no > 0):
        return Grade(None, f"probabilities sum to {yes + no:g}")
    return Grade(None, "as likely as not") if yes == no else Grade(yes > no)


def judges_for(writer: str, judges: Sequence[Member]) -> list[Member]:
    """Those who may judge what ``writer`` wrote: nobody judges an answer of their own.

    ``NAME@ITERATION`` is the member NAME, whichever version of it judges.

    >>> [j.name for j in judges_for("ada@2", [Member("ada", "b"), Member("bob", "b")])]
    ['bob']
    """
    own = writer.partition("@")[0]
    return [judge for judge in judges if judge.name.partition("@")[0] != own]


def together(grades: Mapping[str, Grade]) -> Grade:
    """The majority of the verdicts that could be read; ``grades`` are by the judges' names.

    Nobody to ask, nobody readable and a draw are no verdict.

    >>> together({"ada": Grade(True), "bob": Grade(None, "timeout"), "cora": Grade(True)})
    Grade(same=True, reason='')
    >>> together({"ada": Grade(True), "bob": Grade(False)}).reason
    'judges: 1 yes, 1 no'
    """
    if not grades:
        return Grade(None, "judges: nobody but who wrote it")
    given = [grade.same for grade in grades.values() if grade.same is not None]
    if not given:
        whys = ", ".join(f"{name}: {grade.reason}" for name, grade in grades.items())
        return Grade(None, f"judges: {whys}")
    yes, no = sum(given), len(given) - sum(given)
    return Grade(None, f"judges: {yes} yes, {no} no") if yes == no else Grade(yes > no)
