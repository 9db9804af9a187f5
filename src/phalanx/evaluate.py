"""Members x tasks: responses, marked item by item (:mod:`phalanx.marking`).

Those who answer together are measured likewise: the mixture, and the methods that only answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from phalanx.collective.mixture import Mixed, Mixture, mix_as, mixture_from
from phalanx.config.mixing import MIXTURE
from phalanx.config.schema import Config, TaskSettings
from phalanx.config.schema_evaluate import CONTESTS
from phalanx.config.staging import joining
from phalanx.errors import ConfigError
from phalanx.identity import canonical_json, content_id, derive_seed
from phalanx.ledger import Ledger
from phalanx.ledger.rows import together_key
from phalanx.marking import Answered, record_answers
from phalanx.methods import METHODS, Question, Reached
from phalanx.tasks import BY_LIKELIHOOD, TaskItem, load_task, score, skipped_rows
from phalanx.tasks.comparing import reading_of
from phalanx.tasks.items import UNVOTED
from phalanx.types import (
    Ask,
    IterationResult,
    Likelihood,
    Member,
    Message,
    Request,
    Sampling,
    Want,
)


def load_tasks(config: Config) -> tuple[TaskItem, ...]:
    """Every item of every task of the configuration, in order, but for those that compare."""
    tasks = [task for task in config.evaluate.tasks if task.kind not in CONTESTS]
    return tuple(
        item
        for task in tasks
        for item in load_task(task, seed=config.evaluate.items_seed(config.seed))
    )


def skipped_of(config: Config) -> list[str]:
    """A note for each task that leaves bad rows out."""
    return [note for task in config.evaluate.tasks if (note := skipped_rows(task))]


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

    An item scored by likelihood is one request for each of its choices, one with ``samples`` that
    many. A failed request is a row that is wrong and not readable, with the reason.
    """
    answered = ask_members([(member.name, member) for member in members], items, ask, config)
    record_answers(answered, ask, ledger, config, iteration=iteration)
    ledger.put(f"evaluated:{iteration}", "yes")


def ask_members(
    named_members: Sequence[tuple[str, Member]],
    items: Sequence[TaskItem],
    ask: Ask,
    config: Config,
) -> list[Answered]:
    """Every (name of its rows, member) on every item, member by member.

    Ids do not depend on the iteration: who has not changed is not asked again.
    """
    tasks = {task.name: task for task in config.evaluate.tasks}
    asked = [
        (name, member, item, requests_for(member, item, tasks[item.task], config))
        for name, member in named_members
        for item in items
    ]
    every = [request for *_, requests in asked for request in requests]
    replies = iter(ask("evaluate", every))
    return [
        Answered(name, item, tuple(next(replies) for _ in requests), member.name)
        for name, member, item, requests in asked
    ]


def requests_for(
    member: Member, item: TaskItem, task: TaskSettings, config: Config
) -> list[Request]:
    """What is asked of a member for one item: a text, one a sample, or each choice's likelihood."""
    messages = member.messages(item.instruction)
    wants: list[Want]
    if item.match in BY_LIKELIHOOD:
        wants = [Likelihood(text) for _, text in item.choices]
    else:
        wants = [sampling_of(task, config)] * task.samples
    requests = []
    for number, want in enumerate(wants):
        place: tuple[Any, ...] = ("evaluate", member.key, item.task, item.id, messages, want)
        seed = 0
        if isinstance(want, Sampling) and want.temperature:
            seed = derive_seed(config.seed, *place, number)
            place = (*place, seed)
        requests.append(Request(content_id(*place), member, messages, want, "evaluate", seed))
    return requests


def sampling_of(task: TaskSettings, config: Config) -> Sampling:
    """How a response to a task is written."""
    most = config.evaluate.max_new_tokens
    # 0, not 0.0: ids tell the two apart, and runs that have begun have the former.
    return Sampling(temperature=task.temperature or 0, top_p=1, top_k=0, max_new_tokens=most)


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
    answered = ask_mixture(MIXTURE, mixture, items, ask, config)
    record_answers(answered, ask, ledger, config, iteration=iteration)


def ask_mixture(
    name: str,
    mixture: Mixture,
    items: Sequence[TaskItem],
    ask: Ask,
    config: Config,
) -> list[Answered]:
    """The mixture on every item. Its answer is the aggregator's own; proposers may judge it.

    Raises ConfigError as :func:`answers`.
    """
    found: list[list[Mixed]] = [[] for _ in items]
    for (number, temperature), places in _alike(items, config).items():
        mine = [items[at] for at in places]
        made = answers(
            mixture, mine, ask, config, phase="evaluate", sample=number, temperature=temperature
        )
        for at, one in zip(places, made, strict=True):
            found[at].append(one)
    return [
        Answered(
            name,
            item,
            tuple(one.response for one in mixed),
            mixture.aggregator.name,
            tuple(one.reason for one in mixed),
        )
        for item, mixed in zip(items, found, strict=True)
    ]


def _alike(items: Sequence[TaskItem], config: Config) -> dict[tuple[int, float], list[int]]:
    """(number of the sample, temperature) -> positions of the items that want such an answer."""
    tasks = {task.name: task for task in config.evaluate.tasks}
    found: dict[tuple[int, float], list[int]] = {}
    for at, item in enumerate(items):
        for number in range(tasks[item.task].samples):
            found.setdefault((number, tasks[item.task].temperature), []).append(at)
    return found


def answers(
    mixture: Mixture,
    items: Sequence[TaskItem],
    ask: Ask,
    config: Config,
    *,
    phase: str,
    sample: int = 0,
    temperature: float = 0.0,
) -> list[Mixed]:
    """The mixture's answer to each item, as it is measured (here, and by a search).

    Proposers write by their own settings, as where the mixture is used. The last answer is written
    as members write theirs when they are measured: at the task's temperature (0 is greedily), and
    no longer. ``sample`` counts answers to the same item from 0. As with members, ids
    do not depend on the iteration: a mixture that stays as it was is not asked again.
    Raises ConfigError for items that are scored by the likelihood of given texts.
    """
    _refuse_likelihoods("a mixture", items)
    conversations = [(Message("user", item.instruction),) for item in items]
    want = Sampling(temperature, 1.0, 0, config.evaluate.max_new_tokens)
    place = _place(config, sample)
    return mix_as(conversations, mixture, ask, want, place=place, phase=phase)


def _place(config: Config, sample: int) -> tuple:
    return ("evaluate", config.seed, *([sample] if sample else []))


def _refuse_likelihoods(who: str, items: Sequence[TaskItem]) -> None:
    if unfit := sorted({item.task for item in items if item.match in BY_LIKELIHOOD}):
        raise ConfigError(
            f"{who} writes and gives no likelihood of a given text, which {', '.join(unfit)} "
            "is scored by; leave that task out of evaluate.tasks, or use kind: truthfulqa"
        )


# Methods that answer together --------------------------------------------------------------------


def evaluate_together(
    name: str,
    members: Sequence[Member],
    items: Sequence[TaskItem],
    ask: Ask,
    ledger: Ledger,
    config: Config,
    *,
    best: str,
    iteration: int,
) -> dict[str, int]:
    """Let the method ``name`` answer every item; one row each for the pseudo-member of its name.

    Returns what happened on the way, summed up (:class:`phalanx.methods.Reached`), and records it
    under :func:`phalanx.ledger.rows.together_key` when all rows are there. An item without an
    answer is wrong and not readable, with the reason.
    """
    answered, counts = ask_together(name, name, members, items, ask, config, best=best)
    record_answers(answered, ask, ledger, config, iteration=iteration)
    ledger.put(together_key(iteration, name), canonical_json(counts))
    return counts


def ask_together(
    method: str,
    name: str,
    members: Sequence[Member],
    items: Sequence[TaskItem],
    ask: Ask,
    config: Config,
    *,
    best: str,
) -> tuple[list[Answered], dict[str, int]]:
    """The answers of a method that answers together, in rows of ``name``, and its counts.

    As with members and mixtures, ids do not depend on the iteration. Raises ConfigError for items
    that are scored by the likelihood of given texts, and as the method does.
    """
    _refuse_likelihoods(method, items)
    answer = METHODS[method].answer
    if answer is None:
        raise ConfigError(f"{method} does not answer together; it is no collective to measure")
    found: list[list[Reached]] = [[] for _ in items]
    for (number, temperature), places in _alike(items, config).items():
        made = answer(
            [question_of(items[at]) for at in places],
            members,
            ask,
            config,
            best=best,
            want=Sampling(temperature, 1.0, 0, config.evaluate.max_new_tokens),
            place=_place(config, number),
        )
        for at, one in zip(places, made, strict=True):
            found[at].append(one)
    answered = [
        Answered(
            name,
            item,
            tuple(one.response for one in reached),
            reached[0].writer,
            tuple(one.reason for one in reached),
            tuple(one.writer for one in reached),
        )
        for item, reached in zip(items, found, strict=True)
    ]
    return answered, summed(one for reached in found for one in reached)


def summed(reached: Iterable[Reached]) -> dict[str, int]:
    """What happened on the way to these answers; ``asked`` counts them, every sample by itself."""
    counts: Counter[str] = Counter()
    for one in reached:
        counts.update({"asked": 1, "unanswered": int(one.response is None)} | one.counts)
    return dict(counts)


def question_of(item: TaskItem) -> Question:
    """An item as it is put to those who answer together; how it is scored says how they vote."""
    turns = (Message("user", item.instruction),)
    if item.match in UNVOTED:
        return Question(item.id, turns)
    read, same = reading_of(item)
    return Question(item.id, turns, read, same)


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


def label_metrics(result: IterationResult) -> dict[str, float]:
    """How often the pairs prefer the right response, where the instruction's answer is known.

    Only pairs with exactly one right response can be decided. No method sees the answers but one
    that learns them: a reference, which no member wrote, is right by definition and no finding.
    """
    decidable = right = 0
    for pair in result.pairs:
        answer = pair.instruction.answer
        if pair.drop or answer is None or not pair.chosen_member:
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
