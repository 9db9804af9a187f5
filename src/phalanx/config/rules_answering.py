"""Rules of the methods that only answer: who answers, who votes or chooses, and on what tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from phalanx.config.faults import Fault
from phalanx.config.keys import Path, dotted
from phalanx.config.mixing import MOA, choosers_of, debaters_of, panel_chooses, pool_settings
from phalanx.config.rules_moaa import SCORERS, check_judge_moa, check_mixture, check_writer
from phalanx.config.rules_several import check_debate
from phalanx.config.rules_tasks import LIKELIHOODS
from phalanx.config.schema import Config, MemberSettings, TaskSettings

_FREE_KINDS = ("humaneval", "ifeval", "truthfulqa_mc2", "com2")
_FREE_MATCHES = ("contains", "judged")


def is_free(task: TaskSettings) -> bool:
    """Whether a task's answers are free: nothing that members could agree on
    (:data:`phalanx.tasks.items.UNVOTED`)."""
    return task.kind in _FREE_KINDS if task.kind else task.match in _FREE_MATCHES


def check_self_consistency(config: Config) -> Iterator[Fault]:
    """Somebody who answers, differently each time, and answers to vote on."""
    settings = config.self_consistency
    yield from _written(config)
    yield from _answerer(config, "self_consistency", settings.member)
    yield from _sampled("self_consistency", settings.samples, settings.sample.temperature)
    for position, task in enumerate(config.evaluate.tasks):
        if is_free(task):
            text = (
                f"{task.name} asks for free answers, and self_consistency votes on final ones: "
                "there is nothing to vote on; leave it out, or use best_of_n or council"
            )
            yield Fault(("evaluate", "tasks", position), text)


def check_debating(config: Config) -> Iterator[Fault]:
    """Debaters, and somebody to choose where there is nothing to vote on."""
    yield from _written(config)
    yield from check_debate(config)
    free = [task.name for task in config.evaluate.tasks if is_free(task)]
    debaters = dict.fromkeys(debaters_of(config))
    if free and not config.debate.summariser and pool_settings(config) and len(debaters) < 3:
        text = (
            f"names nobody, and {', '.join(free)}: of free answers the debaters vote for one, but "
            f"{' and '.join(debaters)} have nobody else's two answers to choose between, so one "
            "is drawn; name a summariser, or a third debater"
        )
        yield Fault(("debate", "summariser"), text, "note")


def check_mixing(config: Config) -> Iterator[Fault]:
    """A mixture that can answer."""
    yield from _written(config)
    if pool_settings(config):
        yield from check_mixture(config)
    if config.evaluate.mixture:
        text = "has no use with method: mixture, which measures the mixture anyway"
        yield Fault(("evaluate", "mixture"), text, "note")


def check_council(config: Config) -> Iterator[Fault]:
    """A council that can answer tasks."""
    yield from _written(config)
    yield from check_seats(config)


def check_seats(config: Config) -> Iterator[Fault]:
    """Two answers at least, and a voter who wrote neither."""
    settings = config.council
    for key, names in (("members", settings.members), ("voters", settings.voters)):
        for name in names:
            yield from check_writer(config, name, ("council", key))
    known = pool_settings(config)
    if not known:
        return
    members = settings.members or [m.name for m in known if "contest" in m.roles]
    voters = settings.voters or [
        m.name for m in known if "judge" in m.roles and m.engine != "reward"
    ]
    count = len(set(members))
    if count < 2:
        text = f"a council needs two answers to choose from, and {count} members answer; name more"
        yield Fault(("council", "members"), text)
    elif not voters:
        text = "nobody votes; name members that write, or give one the role judge"
        yield Fault(("council", "voters"), text)
    elif count == 2 and set(voters) <= set(members):
        text = (
            f"every voter ({', '.join(voters)}) wrote one of the two answers, and nobody votes for "
            "an answer of their own; name another voter, or a third member"
        )
        yield Fault(("council", "voters"), text)


def check_best_of_n(config: Config) -> Iterator[Fault]:
    """Somebody who answers, and the best of whose answers can be had."""
    yield from _written(config)
    yield from _answerer(config, "best_of_n", config.best_of_n.member)
    yield from check_choice(config)


def check_choice(config: Config) -> Iterator[Fault]:
    """Answers that differ each time, and somebody who did not write them and chooses."""
    settings = config.best_of_n
    yield from _sampled("best_of_n", settings.samples, settings.sample.temperature)
    known = pool_settings(config)
    if known:
        yield from _choosing(config, known)


def _choosing(config: Config, known: Sequence[MemberSettings]) -> Iterator[Fault]:
    named = config.best_of_n.judge
    judges = [m for m in known if (m.name == named if named else "judge" in m.roles)]
    if named and not judges:
        yield from check_writer(config, named, ("best_of_n", "judge"))
        return
    if panel_chooses(config):
        yield from check_judge_moa(config)
    else:
        yield from _unfit_judges(config, judges)
    yield from _choosers(config, known, [judge.name for judge in judges])


def _unfit_judges(config: Config, judges: Sequence[MemberSettings]) -> Iterator[Fault]:
    protocol = config.judge.protocol
    if protocol not in ("reward", MOA):
        return
    able = SCORERS if protocol == "reward" else ("reward",)
    if unfit := [judge.name for judge in judges if judge.engine not in able]:
        text = (
            f"is {protocol!r}, by which {', '.join(unfit)} cannot rank answers; use pairwise, "
            "rubric, expected or likelihood, or name a reward model in best_of_n.judge"
        )
        yield Fault(("judge", "protocol"), text)


def _choosers(
    config: Config, known: Sequence[MemberSettings], judges: Sequence[str]
) -> Iterator[Fault]:
    """Whoever may be the one that answers leaves somebody to choose."""
    settings = config.best_of_n
    answering = [m.name for m in known if "contest" in m.roles and m.engine != "reward"]
    if settings.member:
        answering = [settings.member]
    lone = [name for name in answering if not choosers_of(config, name, judges)]
    if not lone:
        return
    if panel_chooses(config):
        path: Path = ("reward", "proposers")
        why = "sits on the panel that judges (judge.protocol: moa), or gives its verdict"
    elif settings.judge:
        path, why = ("best_of_n", "judge"), "is the one judge that is named"
    else:
        path, why = ("best_of_n", "judge"), "is the only one with the role judge"
        why = why if judges else "has no other beside it with the role judge"
    who = f"{lone[0]} is the one that answers"
    if not settings.member:
        who = f"{' or '.join(lone)} may be the best on dev items, and so the one that answers"
    text = (
        f"{who}, and {why}; but nobody judges an answer of their own. Name another judge"
        f"{'' if settings.member else ', or the one that answers in best_of_n.member'}"
    )
    yield Fault(path, text)


def _answerer(config: Config, section: str, name: str) -> Iterator[Fault]:
    """The member that answers; without one, the best on dev items, of which there must be some."""
    path: Path = (section, "member")
    if name:
        if pool_settings(config):
            yield from check_writer(config, name, path)
    elif config.evaluate.dev_share == 0 and config.evaluate.tasks:
        text = (
            "names nobody, and with evaluate.dev_share: 0 there are no dev items on which a member "
            "is best; name one, or raise evaluate.dev_share"
        )
        yield Fault(path, text)


def _sampled(section: str, samples: int, temperature: float) -> Iterator[Fault]:
    if samples > 1 and temperature == 0:
        text = f"is 0 (greedy), so the {samples} samples are all the same text; raise it"
        yield Fault((section, "sample", "temperature"), text)


def _written(config: Config) -> Iterator[Fault]:
    """Tasks that are scored by likelihoods want no text, and there is none to choose; several
    samples are to differ."""
    for position, task in enumerate(config.evaluate.tasks):
        if text := all_alike(config.method, task, config):
            yield Fault(("evaluate", "tasks", position, "samples"), text)
        if task.kind in LIKELIHOODS:
            text = (
                f"{task.kind} is scored by the likelihood of given texts, and who answers together "
                "only writes; use kind: truthfulqa"
            )
            yield Fault(("evaluate", "tasks", position, "kind"), text)


def all_alike(method: str, task: TaskSettings, config: Config) -> str:
    """Why all samples of a task would be of the same texts; "" where they are drawn.

    A summariser and an aggregator write as the task says; other answers by their own section.
    """
    as_asked = method == "mixture" or (method == "debate" and config.debate.summariser)
    if task.samples == 1 or as_asked or getattr(config, method).sample.temperature:
        return ""
    return (
        f"{task.name} asks for {task.samples} samples, which {method} writes by {method}.sample; "
        "its temperature is 0 (greedy), so they are all the same; raise it, or ask for one"
    )


def faults_of(method: str, config: Config, best: str) -> list[str]:
    """Why the members of a configuration cannot answer by a method's section, whatever the tasks.

    ``best`` answers where the section names nobody.
    """
    if method in ("self_consistency", "best_of_n"):
        section = getattr(config, method).model_copy(update={"member": best})
        config = config.model_copy(update={method: section})
    found = chain(*(check(config) for check in _WHO[method]))
    data = config.model_dump()
    return [f"{dotted(one.path, data)}: {one.text}" for one in found if one.level == "fault"]


def _who_samples(config: Config) -> Iterator[Fault]:
    settings = config.self_consistency
    yield from check_writer(config, settings.member, ("self_consistency", "member"))
    yield from _sampled("self_consistency", settings.samples, settings.sample.temperature)


def _who_is_chosen_from(config: Config) -> Iterator[Fault]:
    yield from check_writer(config, config.best_of_n.member, ("best_of_n", "member"))
    yield from check_choice(config)


_WHO: dict[str, tuple[Callable[[Config], Iterator[Fault]], ...]] = {
    "self_consistency": (_who_samples,),
    "debate": (check_debate,),
    "council": (check_seats,),
    "best_of_n": (_who_is_chosen_from,),
}
