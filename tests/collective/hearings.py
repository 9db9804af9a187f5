"""A pool on the scripted engine before which responses are compared."""

from __future__ import annotations

from phalanx.config.schema import Config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.types import Instruction, Member

NAMES = ("ada", "bob", "cora", "dan", "eve")
GOOD_FIRST = r"Response A:\n<<<response A \w+>>>\n[^\n]*good"
"""Response A is one of those that hold the word `good`."""
RANKS = {"Seven": 5, "Nine": 4, "Eight": 3, "Ten": 2, "Four": 1}


def preferring_good(purpose="verdict"):
    """Rules of an aggregator that finds the better response in both orders; equal ones tie."""
    good_second = r"Response B:\n<<<response B \w+>>>\n[^\n]*good"
    return [
        {"when": f"{GOOD_FIRST}.*{good_second}", "purpose": purpose, "reply": "[[C]]"},
        {"when": GOOD_FIRST, "purpose": purpose, "reply": "A keeps to the point. [[A]]"},
        {"when": good_second, "purpose": purpose, "reply": "[[B]]"},
        {"when": ".", "purpose": purpose, "reply": "[[C]]"},
    ]


def by_rank(purpose="verdict"):
    """Rules of a judge with a strict order of the words, whatever their place."""
    rules = []
    for shown, verdict in (("A", "[[A]]"), ("B", "[[B]]")):
        for word, rank in RANKS.items():
            worse = "|".join(w for w, r in RANKS.items() if r < rank) or "-"
            first, second = (word, f"(?:{worse})") if shown == "A" else (f"(?:{worse})", word)
            when = (
                rf"Response A:\n<<<response A \w+>>>\n{first}.*"
                rf"Response B:\n<<<response B \w+>>>\n{second}"
            )
            rules.append({"when": when, "purpose": purpose, "reply": verdict})
    return [*rules, {"when": ".", "purpose": purpose, "reply": "[[C]]"}]


def script(*verdicts, criteria="2, 5, 1", assess="A is short. B is long."):
    """The panel's script: ``verdicts`` are the rules of its aggregator."""
    return {
        "sampling": [
            {"when": ".", "purpose": "criteria", "reply": criteria},
            *({"when": ".", "purpose": "assess", "reply": assess} for _ in [0] if assess),
            *(verdicts or preferring_good()),
        ]
    }


class Asked:
    """An ``ask`` that answers from the script, each id once, and keeps what was asked."""

    def __init__(self, rules) -> None:
        self.engine = ScriptedEngine({"script:s": rules})
        self.phases: list[tuple[str, int]] = []
        self.requests: list = []
        self.replies: dict = {}
        self.lines: list[str] = []

    def __call__(self, phase, requests):
        self.phases.append((phase, len(requests)))
        for request in requests:
            if request.id in self.replies:
                continue
            self.requests.append(request)
            (reply,) = self.engine.respond([request])
            self.replies[request.id] = reply
            said = reply.text if reply.error is None else f"[{reply.error.kind}]"
            said = reply.said if reply.error is None and reply.text is None else said
            last = request.messages[-1].content.replace("\n", " / ")
            self.lines.append(
                f"{phase} | {request.purpose} | {request.member.key} | {last} -> {said}"
            )
        return [self.replies[request.id] for request in requests]

    def of(self, purpose):
        return [request for request in self.requests if request.purpose == purpose]


def members(names=NAMES, version=0, **engines):
    return tuple(
        Member(name, "script:s", engine=engines.get(name, "scripted"), version=version)
        for name in names
    )


def settings(**sections):
    """Proposers ada and bob, aggregator cora; dan and eve are students."""
    return Config.model_validate(
        {
            "method": "moaa",
            "pool": {"members": [{"name": name, "engine": "scripted"} for name in NAMES]},
            "mixture": {"proposers": ["ada", "bob"], "aggregator": "cora"},
            "moaa": {"students": [{"name": "dan"}, {"name": "eve"}]},
            **sections,
        }
    )


def instruction(number=1, text="Name a prime."):
    return Instruction(f"i{number}", text)
