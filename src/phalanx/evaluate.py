"""Members x tasks: greedy responses, scored item by item, into the ledger; mixtures likewise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from phalanx.collective.mixture import Mixed, Mixture, mix, mixture_from
from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import Config
from phalanx.config.staging import joining
from phalanx.errors import ConfigError
from phalanx.identity import content_id
from phalanx.ledger import Ledger
from phalanx.tasks import (
    BY_LIKELIHOOD,
    Score,
    TaskItem,
    answer_of,
    load_task,
    normalise,
    score,
    score_sums,
    split_of,
)
from phalanx.types import (
    Ask,
    IterationResult,
    Likelihood,
    Member,
    Message,
    Request,
    Response,
    Sampling,
    Want,
)


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
    """Ask every member every item and record one row each; the iteration is then measured.

    An item scored by likelihood is one request for each of its choices. A failed request is a row
    that is wrong and not readable, with the reason.
    """
    want = Sampling(temperature=0, top_p=1, top_k=0, max_new_tokens=config.evaluate.max_new_tokens)
    asked = [(member, item) for member in members for item in items]
    requests = []
    for member, item in asked:
        messages = member.messages(item.instruction)
        for wanted in _wants(item, want):
            key = content_id("evaluate", member.key, item.task, item.id, messages, wanted)
            requests.append(Request(key, member, messages, wanted, "evaluate"))
    responses = iter(ask("evaluate", requests))
    rows = []
    for member, item in asked:
        got = [next(responses) for _ in _wants(item, want)]
        if item.match in BY_LIKELIHOOD:
            rows.append(_likelihood_row(iteration, member.name, item, got, config))
        else:
            rows.append(_row(iteration, member.name, item, got[0], config))
    ledger.record_evaluation(rows)
    ledger.put(f"evaluated:{iteration}", "yes")


def _wants(item: TaskItem, want: Sampling) -> list[Want]:
    """What is asked of a member for one item."""
    if item.match in BY_LIKELIHOOD:
        return [Likelihood(text) for _, text in item.choices]
    return [want]


def evaluate_mixture(
    mixture: Mixture,
    items: Sequence[TaskItem],
    ask: Ask,
    ledger: Ledger,
    config: Config,
    *,
    iteration: int,
) -> None:
    """Let the mixture answer every item; one row each for the pseudo-member ``mixture``.

    An item without an answer is wrong and not readable, with the reason. Asked before
    :func:`evaluate`, which says that the iteration is measured.
    """
    rows = [
        _row(iteration, MIXTURE, item, mixed.response, config, mixed.reason)
        for item, mixed in zip(
            items, answers(mixture, items, ask, config, phase="evaluate"), strict=True
        )
    ]
    ledger.record_evaluation(rows)


def answers(
    mixture: Mixture, items: Sequence[TaskItem], ask: Ask, config: Config, *, phase: str
) -> list[Mixed]:
    """The mixture's answer to each item, as it is measured (here, and by a search).

    Proposers write by their own settings, as where the mixture is used. The last answer is written
    as members write theirs when they are measured: greedily, and no longer. As with members, ids
    do not depend on the iteration: a mixture that stays as it was is not asked again.
    Raises ConfigError for items that are scored by the likelihood of given texts.
    """
    if unfit := sorted({item.task for item in items if item.match in BY_LIKELIHOOD}):
        raise ConfigError(
            f"a mixture writes and gives no likelihood of a given text, which {', '.join(unfit)} "
            "is scored by; leave that task out of evaluate.tasks, or use kind: truthfulqa"
        )
    last = mixture.settings.aggregate.model_copy(
        update={
            "temperature": 0.0,
            "top_p": 1.0,
            "top_k": 0,
            "max_new_tokens": config.evaluate.max_new_tokens,
        }
    )
    settings = mixture.settings.model_copy(update={"aggregate": last})
    conversations = [(Message("user", item.instruction),) for item in items]
    place = ("evaluate", config.seed)
    return mix(conversations, replace(mixture, settings=settings), ask, place=place, phase=phase)


def mixture_after(config: Config, ledger: Ledger, number: int) -> Mixture | None:
    """The mixture to measure after an iteration (0: at the start); None where there is none.

    With ``moaa`` it is that of the generation to come, once a generation has ended: its members as
    they are by now, and the students that join. Otherwise the mixture of the members by now.
    """
    if not config.evaluate.mixture:
        return None
    if config.method != "moaa":
        return mixture_from(config, ledger.members(number))
    if number % len(config.moaa.stages):
        return None
    since = 0 if config.moaa.self_improve == "off" else number
    return mixture_from(config, ledger.members(since), joining(config, number + 1))


def _row(
    iteration: int,
    name: str,
    item: TaskItem,
    response: Response | None,
    config: Config,
    missing: str = "",
) -> dict[str, Any]:
    """One row of ``evaluations``; ``missing`` says why there is no response."""
    text = (response.text if response else None) or ""
    error = response.error if response else None
    result = score(text, item)
    reason = missing or (error.kind if error else result.reason)
    if error is not None:
        result = Score(result.correct, False)
    return _columns(iteration, name, item, config, result) | {
        "answer": normalise(text, item),
        "reason": reason,
        "response": response.request_id if response else "",
    }


def _likelihood_row(
    iteration: int, name: str, item: TaskItem, responses: Sequence[Response], config: Config
) -> dict[str, Any]:
    """One row from the likelihoods of all choices; ``response`` names the first one's."""
    sums = [one.logprob_sum for one in responses]
    result = score_sums(sums, item)
    failed = next((one.error.kind for one in responses if one.error is not None), "")
    return _columns(iteration, name, item, config, result) | {
        "answer": answer_of(sums, item),
        "reason": failed or result.reason,
        "response": responses[0].request_id,
    }


def _columns(
    iteration: int, name: str, item: TaskItem, config: Config, result: Score
) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "member": name,
        "task": item.task,
        "item": item.id,
        "domain": item.domain,
        "split": split_of(item, config.evaluate.dev_share),
        "correct": int(result.correct),
        "readable": int(result.readable),
        "score": float(result.correct),
    }


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
