"""Rules of the methods in which several members make data for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec

from phalanx.config.faults import Fault
from phalanx.config.keys import Path
from phalanx.config.mixing import critics_of, debaters_of, pool_settings
from phalanx.config.rules_moaa import check_writer
from phalanx.config.schema import Config
from phalanx.config.schema_rivals import Match


def check_match(match: Match, path: Path) -> Iterator[Fault]:
    """Expressions are compared by a package of their own."""
    if match == "math" and find_spec("math_verify") is None:
        text = (
            "math compares expressions, which needs the package math-verify; run pip install "
            "'phalanx[math]', or use another match"
        )
        yield Fault(path, text)


def check_debate(config: Config) -> Iterator[Fault]:
    """Whether the section ``debate`` can be used: who debates, and who sums up."""
    settings, path = config.debate, ("debate", "debaters")
    for name in settings.debaters:
        yield from check_writer(config, name, path)
    if settings.summariser:
        yield from check_writer(config, settings.summariser, ("debate", "summariser"))
    count = len(debaters_of(config))
    if pool_settings(config) and count < 2:
        text = f"a debate needs two debaters, and there {'is one' if count else 'are none'}"
        yield Fault(path, f"{text}; name them (one member may sit there twice), or add a member")
    several = [name for name, seats in Counter(settings.debaters).items() if seats > 1]
    if several and settings.sample.temperature == 0:
        text = f"is 0 (greedy), so all seats of {', '.join(several)} say the same; raise it"
        yield Fault(("debate", "sample", "temperature"), text)


def check_multiagent(config: Config) -> Iterator[Fault]:
    """Who debates, who of them revises, and whether anybody can."""
    yield from check_match(config.multiagent.match, ("multiagent", "match"))
    yield from check_debate(config)
    if config.debate.summariser:
        text = "has no use with method: multiagent, which learns from what the debaters agree on"
        yield Fault(("debate", "summariser"), text, "note")
    learners = [m.name for m in pool_settings(config) if "learn" in m.roles]
    debating, critics = set(debaters_of(config)), critics_of(config)
    path: Path = ("multiagent", "critics")
    for name in config.multiagent.critics:
        if name not in learners:
            text = f"{name} has not the role learn"
            known = f"; learners are {', '.join(learners) or '(none)'}"
            yield Fault(path, text + known)
        elif name not in debating:
            yield Fault(path, f"{name} is no debater, and so revises nothing; see debate.debaters")
    if critics and config.debate.rounds < 2:
        text = (
            f"is 1, and critics ({', '.join(critics)}) learn from revisions, of which the first is "
            "in round 2; raise it"
        )
        yield Fault(("debate", "rounds"), text)
    if idle := [name for name in learners if name not in debating]:
        text = f"leaves out {', '.join(idle)}, with the role learn, who then learns nothing"
        every = len(idle) == len(learners)
        yield Fault(("debate", "debaters"), text, "fault" if every else "note")


def check_consensus(config: Config) -> Iterator[Fault]:
    """Groups that can differ."""
    settings = config.consensus_grpo
    yield from check_match(settings.match, ("consensus_grpo", "match"))
    if settings.sample.temperature == 0:
        text = (
            f"is 0 (greedy), so the {settings.samples} samples of a learner are all the same, and "
            "a group without differences teaches nothing; raise it"
        )
        yield Fault(("consensus_grpo", "sample", "temperature"), text)
    learners = [m.name for m in pool_settings(config) if "learn" in m.roles]
    if len(learners) == 1:
        text = f"{learners[0]} alone has the role learn, and so agrees with nobody but itself"
        yield Fault(("pool", "members"), text, "note")
