"""Tasks of lm-eval (the Language Model Evaluation Harness) for whoever is measured here.

lm-eval makes the prompts, filters the answers and scores them; asking, recording and resuming are
ours. Members are asked as in a chat: the description is a system message, examples are turns of
their own, the question is the user's turn and what is scored or written is the assistant's, all by
the member's own template (lm-eval's ``--apply_chat_template --fewshot_as_multiturn``).

Where numbers can differ from those of lm-eval's own models:

- a choice is tokenised apart from the prompt; there white space at the end of the prompt counts as
  the choice's. Where a template ends with a line's end, each choice of an item has the same
  constant more there, which changes no ranking and no normalised mass;
- a prompt that is too long is a failure, which is wrong; there its beginning is cut off silently;
- reasoning before an answer is taken off;
- an item whose choices are all equally likely is wrong; there the first one counts as chosen.

Refused: tasks that run written code without a sandbox (``kind: humaneval`` does it confined),
images, the likelihood of whole texts, whether a text is what greedy decoding would write, answers
that are begun for the model, and several samples of an item.
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from phalanx.asking import Asking
from phalanx.collective.ownwords import answer_alone
from phalanx.config.faults import closest
from phalanx.errors import ConfigError, MissingPackage
from phalanx.evaluate import summed
from phalanx.identity import content_id
from phalanx.measuring.subjects import MAJORITY, Subject, answers, record_counts
from phalanx.methods import Reached
from phalanx.tasks import TaskItem, split_of
from phalanx.types import Likelihood, Message, Request, Response, Sampling

PREFIX = "lm-eval:"
_SEED = 1234  # lm-eval's own, for which examples are shown
_INVALID = "[invalid]"  # what lm-eval's filters give where nothing matches
_ENDINGS = (".yaml", ".yml")
_LIKELIHOOD = "multiple_choice"
_WRITES_NONE = ("openai", "reward")
_SHARES = ("exact_match", "em", "likelihood")
_OF_ALL = ("bleu", "chrf", "chrf++", "f1", "mcc", "bypass")
"""lm-eval's metrics of all items together, or beyond 1."""
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def measure_lm_eval(
    task: str, subjects: Sequence[Subject], place: Asking, limit: int | None
) -> None:
    """Ask every subject a task, a group or a tag of lm-eval, and record a row for every item.

    ``task`` is a name that lm-eval knows, or a YAML file of one's own. ``limit``: the first so many
    items of each task. The row's task is :func:`row_name`, its item the number that lm-eval gave,
    its score one metric of the task, the same for everybody, by the first of its filters.

    Raises MissingPackage; ConfigError where lm-eval cannot load the task, where it asks for what
    nobody here can do (see above), or has no metric from 0 to 1 that is better when higher.
    """
    loaded = _load(task)
    if faults := _unfit(task, loaded["tasks"], subjects):
        raise ConfigError(faults)
    from lm_eval.evaluator import evaluate

    for subject in subjects:
        place.check_stop()
        _show_the_same(loaded)
        player = _Player(subject, place)
        with _silent():
            results = evaluate(
                lm=player,
                task_dict=loaded,
                limit=limit,
                bootstrap_iters=0,
                apply_chat_template=True,
                fewshot_as_multiturn=True,
            )
        metrics = {name: _metric(one) for name, one in loaded["tasks"].items()}
        rows = list(_rows(row_name(task), player, results, metrics, place))
        place.ledger.record_evaluation(rows)
        record_counts(subject, row_name(task), summed(player.reached), place)


def row_name(task: str) -> str:
    """What rows call a task: its name or the name of its file, after ``lm-eval:``."""
    return PREFIX + (Path(task).name if task.endswith(_ENDINGS) else task)


def lm_eval_rows(task: str, limit: int | None) -> str:
    """The content id of what is asked and how it is scored: lm-eval's version, documents, prompts
    with their examples, choices, metrics. Raises as :func:`measure_lm_eval`."""
    from importlib.metadata import version

    loaded = _load(task)
    _show_the_same(loaded)
    found: list[Any] = [version("lm_eval")]
    with _silent():
        for name, one in sorted(loaded["tasks"].items()):
            one.build_all_requests(
                limit=limit,
                rank=0,
                world_size=1,
                apply_chat_template=True,
                fewshot_as_multiturn=True,
                chat_template=_as_json,
            )
            asked = [(each.doc_id, each.doc, each.args) for each in one.instances]
            scored = {key: one.get_config(key) for key in ("metric_list", "filter_list")}
            found.append(json.dumps([name, _metric(one), scored, asked], default=str))
    return content_id(*found)


def _show_the_same(loaded: Mapping[str, Any]) -> None:
    """Everybody is shown the same examples."""
    for one in loaded["tasks"].values():
        if one.get_config("num_fewshot") is None:
            one.set_config(key="num_fewshot", value=0)
        one.set_fewshot_seed(seed=_SEED)


@contextmanager
def _silent() -> Iterator[None]:
    """Without the bars and lines of lm-eval and datasets: progress is shown by us."""
    import datasets
    from lm_eval.api import task as module

    logger, bars = logging.getLogger("lm_eval"), datasets.are_progress_bars_disabled()
    level, bar = logger.level, module.tqdm
    module.tqdm = lambda rows, **_: rows
    logger.setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        module.tqdm = bar
        logger.setLevel(level)
        if not bars:
            datasets.enable_progress_bars()


def _as_json(chat: Sequence[Mapping[str, str]], add_generation_prompt: bool = True) -> str:
    """A conversation as a text that :func:`_turns` reads back; templates come later."""
    return json.dumps(list(chat))


def lm_eval_faults(task: str, subjects: Sequence[Subject]) -> list[str]:
    """Why these subjects cannot be asked this task, before anything is opened. No model is loaded.

    Raises MissingPackage.
    """
    try:
        return _unfit(task, _load(task)["tasks"], subjects)
    except ConfigError as error:
        return [str(error)]


# Loading -----------------------------------------------------------------------------------------


def _load(name: str) -> dict[str, Any]:
    """lm-eval's tasks by name, with the groups that they are in."""
    manager = _manager(not name.endswith(_ENDINGS))
    if name.endswith(_ENDINGS):
        if not Path(name).is_file():
            raise ConfigError(f"{PREFIX}{name}: there is no such file")
        name = str(Path(name).absolute())
    elif name not in manager.all_tasks:
        near = closest(name, manager.all_tasks)
        hint = f"did you mean {near}?" if near else "`lm-eval ls tasks` lists them"
        raise ConfigError(f"{PREFIX}{name}: lm-eval has no task of that name; {hint}")
    state = random.getstate()
    random.seed(0)  # as lm-eval does: some tasks shuffle their options by the global generator
    try:
        with _silent():
            return manager.load(name)
    except Exception as error:  # whatever a task's own code or its data set raises
        raise ConfigError(
            f"{PREFIX}{name}: lm-eval could not load it ({type(error).__name__}: {error}); its own "
            "tasks take their rows from a hub, so without one give a YAML file with dataset_path: "
            "json and dataset_kwargs.data_files"
        ) from error
    finally:
        random.setstate(state)


@cache
def _manager(all_of_them: bool) -> Any:
    try:
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "lm_eval":
            raise
        raise MissingPackage("lm-eval", "lm-eval", "A task of lm-eval") from None
    return TaskManager(include_defaults=all_of_them)


def _unfit(name: str, tasks: Mapping[str, Any], subjects: Sequence[Subject]) -> list[str]:
    """Why tasks cannot be asked here, each with what to do."""
    faults = [
        f"{PREFIX}{name}: {mine} {reason}"
        for mine, task in tasks.items()
        if (reason := _refused(task))
    ]
    voting = [one.name for one in subjects if one.together == MAJORITY]
    if voting:
        faults.append(
            f"{PREFIX}{name}: {', '.join(voting)} votes on answers and writes none of its own; "
            "leave it out"
        )
    by_likelihood = [mine for mine, task in tasks.items() if task.OUTPUT_TYPE == _LIKELIHOOD]
    silent = [one.name for one in subjects if one.name not in voting and not _has_likelihood(one)]
    if by_likelihood and silent:
        faults.append(
            f"{PREFIX}{name}: {', '.join(by_likelihood[:3])} is scored by the likelihood of given "
            f"texts, which {', '.join(silent)} cannot say; leave them out"
        )
    return faults


def _has_likelihood(subject: Subject) -> bool:
    return not subject.together and subject.members[0].engine not in _WRITES_NONE


def _refused(task: Any) -> str:
    """Why a task is not asked at all; "" where it is."""
    metrics = {metric["metric"] for metric in task.get_config("metric_list") or []}
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return "wants the likelihood of whole texts; a member of a chat has none of a user's text"
    if task.OUTPUT_TYPE not in ("generate_until", _LIKELIHOOD):
        return f"is of type {task.OUTPUT_TYPE}, which asks what greedy decoding would write"
    if getattr(task, "UNSAFE_CODE", False):
        return "runs code that models write, without a sandbox; use kind: humaneval"
    if getattr(task, "MULTIMODAL", False):
        return "shows images or sounds"
    if task.get_config("gen_prefix"):
        return "begins the answer for the model (gen_prefix), which cannot be asked in a chat here"
    if (task.get_config("repeats") or 1) > 1:
        return "takes several samples of each item (repeats); only one is asked here"
    if task.OUTPUT_TYPE == _LIKELIHOOD and (odd := metrics & {"exact_match", "acc_mutual_info"}):
        return f"has the metric {', '.join(sorted(odd))}, which wants more than likelihoods"
    if not _metric(task):
        return (
            "has no metric that is a number from 0 to 1 for every item, better when higher (it has "
            f"{', '.join(task.higher_is_better())}); run it with lm-eval itself"
        )
    return ""


# Asking ------------------------------------------------------------------------------------------


@dataclass
class _Player:
    """A subject as lm-eval sees a model (the methods of ``lm_eval.api.model.LM`` that it calls).

    ``reached``: every text that was asked for. ``failed`` and ``responses``: (task, number of the
    item) -> why there is no answer, and the id of the first request.
    """

    subject: Subject
    place: Asking
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    responses: dict[tuple[str, int], str] = field(default_factory=dict)
    reached: list[Reached] = field(default_factory=list)
    rank: int = 0
    world_size: int = 1

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """See :func:`_as_json`."""
        return _as_json(chat_history)

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """One text for each request, up to the first of its stop strings."""
        conversations = [_turns(request.args[0]) for request in requests]
        longest = self.place.config.evaluate.max_new_tokens
        wants = [_sampling(request.args[1], longest) for request in requests]
        made = answers(self.subject, conversations, wants, self.place)
        self.reached += made
        texts = []
        for request, one in zip(requests, made, strict=True):
            reply = one.response
            self._note(request, reply, one.reason)
            text = answer_alone(reply.text or "") if reply is not None else ""
            texts.append(_cut(text, request.args[1].get("until")))
        return texts

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """(sum of log-probabilities, False) of each continuation as the assistant's turn."""
        (member,) = self.subject.members
        asked = []
        for request in requests:
            context, continuation = request.args[:2]
            messages, want = member.conversation(_turns(context)), Likelihood(continuation)
            key = content_id("evaluate", PREFIX, member.key, messages, want)
            asked.append(Request(key, member, messages, want, "evaluate"))
        replies = self.place.ask(0)("evaluate", asked)
        for request, reply in zip(requests, replies, strict=True):
            self._note(request, reply)
        sums = [reply.logprob_sum for reply in replies]
        return [(-math.inf if one is None else one, False) for one in sums]

    def _note(self, request: Any, reply: Response | None, missing: str = "") -> None:
        where = (request.task_name, request.doc_id)
        if reply is None:
            self.failed.setdefault(where, missing)
            return
        self.responses.setdefault(where, reply.request_id)
        if reply.error is not None:
            self.failed.setdefault(where, reply.error.kind)


def _turns(context: str) -> tuple[Message, ...]:
    return tuple(Message(one["role"], one["content"]) for one in json.loads(context))


def _sampling(given: Mapping[str, Any], longest: int) -> Sampling:
    """lm-eval's settings of a text; without a length of its own ``evaluate.max_new_tokens``."""
    most = next((int(given[name]) for name in _LENGTHS if given.get(name) is not None), longest)
    temperature = float(given.get("temperature") or 0.0)
    if given.get("do_sample") is False or not temperature:
        return Sampling(0.0, 1.0, 0, most)
    return Sampling(
        temperature, float(given.get("top_p") or 1.0), int(given.get("top_k") or 0), most
    )


def _cut(text: str, until: str | Sequence[str] | None) -> str:
    for stop in [until] if isinstance(until, str) else until or ():
        if stop:
            text = text.partition(stop)[0]
    return text


# Rows --------------------------------------------------------------------------------------------


def _rows(
    task: str,
    player: _Player,
    results: Mapping[str, Any],
    metrics: Mapping[str, str],
    place: Asking,
) -> Iterator[dict[str, Any]]:
    """One row an item. Of several tasks (a group) each one's name is the domain."""
    samples: Mapping[str, list[dict[str, Any]]] = results["samples"]
    for name, every in samples.items():
        mine = [one for one in every if one["filter"] == every[0]["filter"]]
        metric = metrics[name]
        answered = [one for one in mine if (name, one["doc_id"]) not in player.failed]
        values = [_number(one[metric]) for one in answered]
        if any(v is None or (math.isfinite(v) and not 0 <= v <= 1) for v in values):
            raise ConfigError(
                f"{task}: the metric {metric} of {name} is no number from 0 to 1 for every item; "
                "run it with lm-eval itself"
            )
        for sample in mine:
            number = sample["doc_id"]
            item = f"{name}:{number}" if len(samples) > 1 else str(number)
            prompt = str(sample["arguments"][0][0])
            shown = TaskItem(item, prompt, "", "", task, "exact")
            share, reason = _share(sample, metric, player.failed.get((name, number), ""))
            yield {
                "iteration": 0,
                "member": player.subject.name,
                "task": shown.task,
                "item": item,
                "domain": name if len(samples) > 1 else "",
                "split": split_of(shown, place.config.evaluate.dev_share),
                "correct": int(share > 0.5),
                "readable": int(not reason),
                "score": share,
                "answer": "" if reason else _answer(sample),
                "reason": reason,
                "response": player.responses.get((name, number), ""),
            }


def _metric(task: Any) -> str:
    """The metric that is the score, whoever answers: the first in the task's order that is known
    to be a share of each item; else the first of the task's own; "" where there is none."""
    better = [name for name, higher in task.higher_is_better().items() if higher]
    shares = [name for name in better if name in _SHARES or "acc" in name.split("_")]
    return next(iter([*shares, *(name for name in better if name not in _OF_ALL)]), "")


def _number(value: Any) -> float | None:
    """A metric of one item; None for what is no number."""
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, bool | int | float):
        return None
    return float(plain)


def _share(sample: Mapping[str, Any], metric: str, failed: str) -> tuple[float, str]:
    """(score, why there is none)."""
    if failed:
        return 0.0, failed
    sums = _sums(sample)
    if len(sums) > 1 and min(sums) == max(sums):
        return 0.0, "tie"
    share = _number(sample[metric])
    if share is None or not math.isfinite(share):
        return 0.0, "no score"
    if not share and not sums and sample["filtered_resps"][0] == _INVALID:
        return 0.0, "unreadable"
    return share, ""


def _sums(sample: Mapping[str, Any]) -> list[float]:
    """The likelihoods of the choices; none of a text that was written."""
    found = sample["filtered_resps"]
    return [one[0] for one in found] if all(isinstance(one, tuple) for one in found) else []


def _answer(sample: Mapping[str, Any]) -> str:
    """The number of the likeliest choice, or what lm-eval's filter took from the text."""
    sums = _sums(sample)
    return str(sums.index(max(sums))) if sums else str(sample["filtered_resps"][0])
