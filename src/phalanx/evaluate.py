"""Members x tasks: greedy responses, scored item by item, into the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.config.schema import Config
from phalanx.identity import content_id
from phalanx.ledger import Ledger
from phalanx.tasks import TaskItem, load_task, normalise, score, split_of
from phalanx.types import Ask, IterationResult, Member, Request, Sampling


def load_tasks(config: Config) -> tuple[TaskItem, ...]:
    """Every item of every task of the configuration, in order."""
    return tuple(
        item for task in config.evaluate.tasks for item in load_task(task, seed=config.seed)
    )


def evaluate(
    members: Sequence[Member],
    items: Sequence[TaskItem],
    ask: Ask,
    ledger: Ledger,
    config: Config,
    *,
    iteration: int,
) -> None:
    """Ask every member every item and record one row each.

    A failed request is a row that is wrong and not readable, with the reason.
    """
    want = Sampling(temperature=0, top_p=1, top_k=0, max_new_tokens=config.evaluate.max_new_tokens)
    asked = [(member, item) for member in members for item in items]
    requests = []
    for member, item in asked:
        messages = member.messages(item.instruction)
        key = content_id("evaluate", member.key, item.task, item.id, messages, want)
        requests.append(Request(key, member, messages, want, "evaluate"))
    rows = []
    for (member, item), request, response in zip(
        asked, requests, ask("evaluate", requests), strict=True
    ):
        text = response.text or ""
        result = score(text, item)
        reason = response.error.kind if response.error else result.reason
        rows.append(
            {
                "iteration": iteration,
                "member": member.name,
                "task": item.task,
                "item": item.id,
                "domain": item.domain,
                "split": split_of(item, config.evaluate.dev_share),
                "correct": int(result.correct),
                "readable": int(result.readable and response.error is None),
                "answer": normalise(text, item),
                "reason": reason,
                "response": request.id,
            }
        )
    ledger.record_evaluation(rows)
    ledger.put(f"evaluated:{iteration}", "yes")


def label_metrics(result: IterationResult) -> dict[str, float]:
    """How often the pairs prefer the right response, where the instruction's answer is known.

    Only pairs with exactly one right response can be decided; methods never see the answers.
    """
    decidable = right = 0
    for pair in result.pairs:
        answer = pair.instruction.answer
        if pair.drop or answer is None:
            continue
        item = TaskItem(
            id=pair.instruction.id, instruction=pair.instruction.text, answer=answer,
            domain=pair.instruction.domain, task="labels", match="exact",
        )  # fmt: skip
        chosen, rejected = (score(text, item).correct for text in (pair.chosen, pair.rejected))
        decidable += chosen != rejected
        right += chosen and not rejected
    if not decidable:
        return {}
    return {"num_decidable_pairs": decidable, "label_accuracy": right / decidable}
