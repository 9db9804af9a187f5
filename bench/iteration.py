"""One Sparta iteration end to end: four adapters of one base, against the plain script.

Each side runs in a process of its own, with nothing of the other's threads or memory.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench import plain
from bench.measuring import Item
from bench.setting import ROOT, Setting, instructions
from phalanx.types import Instruction, PreferencePair

MEMBERS = 4


def run(setting: Setting) -> list[Item]:
    setting.members(MEMBERS)  # made before any clock runs
    sides = {side: _in_its_own_process(setting, side) for side in ("ours", "plain")}
    ours, plainly = sides["ours"], sides["plain"]
    total = sum(ours["phases"].values())
    theirs = sum(plainly["phases"].values())
    # What the ratio would be if answering and judging cost nothing.
    bound = theirs / ours["phases"]["train"]
    rounded = {
        side: {name: round(value, 1) for name, value in sides[side]["phases"].items()}
        for side in ("plain", "ours")
    }
    note = (
        f"seconds {rounded}; ours judges by likelihood, the protocol for a model of this size; "
        f"{ours['pairs']} pairs a member on both sides, of which the plain judges' JSON left "
        f"{plainly['decided']}, the others drawn at random; the plain script's training is that of "
        f"one member, counted {MEMBERS} times; if answering and judging cost nothing: {bound:.1f}x"
    )
    raw = {**sides, "plain_s": theirs, "ours_s": total}
    return [
        Item("one iteration: speed against the plain script", theirs / total, "x faster",
             at_least=4.0, raw=raw, note=note),
    ]  # fmt: skip


def _in_its_own_process(setting: Setting, side: str) -> dict[str, Any]:
    out = setting.scratch / f"{side}.json"
    given = {
        "model": str(setting.model),
        "device": setting.device,
        "quick": setting.quick,
        "scratch": str(setting.scratch),
    }
    environment = dict(os.environ)
    if side == "plain":  # a plain script changes nothing of how threads wait
        environment.pop("OMP_WAIT_POLICY", None)
    command = [sys.executable, "-m", "bench.iteration", side, json.dumps(given), str(out)]
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return json.loads(out.read_text(encoding="utf-8"))


def sizes(setting: Setting) -> tuple[int, int]:
    """Duels and new tokens."""
    return setting.size(32, 4), setting.size(64, 8)


def ours(setting: Setting) -> dict[str, Any]:
    """``align`` with the settings that a user would give it here."""
    from phalanx.config.schema import Config
    from phalanx.ledger import Ledger, run_ledger_path
    from phalanx.loop import align

    duels, new = sizes(setting)
    source = setting.scratch / "instructions.jsonl"
    lines = [json.dumps({"instruction": text}) for text in instructions(duels)]
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    members = [
        {"name": m.name, "model": m.base, "adapter": m.adapter} for m in setting.members(MEMBERS)
    ]
    config = Config.model_validate(
        {
            "iterations": 1,
            "pool": {"members": members},
            "instructions": {"source": str(source)},
            "match": {"duels": duels},
            "answer": {"max_new_tokens": new},
            "judge": {"protocol": "likelihood"},
            "pairs": {"truncated": "allow"},
            "train": {"batch_size": plain.BATCH},
            "resources": {
                "device": setting.device,
                "workers": 1 if setting.quick or setting.device != "cpu" else 2,
                "threads": setting.threads,
            },
        }
    )
    folder = setting.scratch / "run"
    clock = Phases()
    clock.begin("start")
    align(config, folder, progress=clock)
    clock.end()
    with Ledger(run_ledger_path(folder)) as ledger:
        kept = ledger.count("pairs", "dropped = ''")
        tokens = ledger.query(
            "SELECT sum(num_completion_tokens) AS n FROM responses WHERE purpose = 'answer'"
        )[0]["n"]
    phases = dict(clock.seconds)
    shutil.rmtree(folder)
    return {"phases": phases, "pairs": kept, "tokens": tokens}


class Phases:
    """A progress that adds up seconds by phase; what lies between two phases is ``start``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._name, self._began = "", 0.0

    def begin(self, name: str) -> None:
        self.end()
        self._name, self._began = name, time.perf_counter()

    def end(self) -> None:
        if self._name:
            self.seconds[self._name] += time.perf_counter() - self._began
        self._name = ""

    def start(self, phase: str, total: int, unit: str = "") -> None:
        self.begin(phase.split()[0])

    def advance(self, amount: int = 1) -> None: ...

    def finish(self, note: str = "") -> None:
        self.begin("start")

    def say(self, text: str) -> None: ...


def plainly(setting: Setting, num_pairs: int) -> dict[str, Any]:
    """One model load for each member and phase; the judges write JSON; TRL as it is."""
    duels, new = sizes(setting)
    members = setting.members(MEMBERS)
    clock = Phases()
    clock.begin("answer")
    drawn = random.Random(0)
    texts = instructions(duels)
    sides = [drawn.sample(range(MEMBERS), 2) for _ in range(duels)]
    answers: dict[tuple[int, int], str] = {}
    for number, member in enumerate(members):
        owed = [duel for duel in range(duels) if number in sides[duel]]
        written = plain.write(setting, member, [texts[duel] for duel in owed], new, fixed=True)
        answers |= {(duel, number): text for duel, text in zip(owed, written, strict=True)}
    clock.begin("judge")
    scores: dict[tuple[int, int], list[float]] = defaultdict(list)
    for number, member in enumerate(members):
        owed = [(d, side) for d in range(duels) if number not in sides[d] for side in sides[d]]
        prompts = [_judging_prompt(texts[d], answers[d, side], d) for d, side in owed]
        verdicts = plain.write(setting, member, prompts, 32, fixed=False)
        for place, verdict in zip(owed, verdicts, strict=True):
            score = plain.read_score(verdict)
            if score is not None:
                scores[place].append(score)
    clock.begin("pairs")
    pairs, decided = _pairs(texts, sides, answers, scores, drawn)
    clock.begin("train")
    # Every member's training is the same work, and takes minutes: one is run and counts for all.
    plain.train(setting, members[0], pairs[:num_pairs], {}, "plain")
    clock.end()
    clock.seconds["train"] *= MEMBERS
    return {"phases": dict(clock.seconds), "pairs": len(pairs[:num_pairs]), "decided": decided}


def _judging_prompt(instruction: str, response: str, number: int) -> str:
    """The rubric that ours uses: both sides read the same words."""
    from phalanx.collective.judging import judge_requests
    from phalanx.config.schema import JudgeSettings
    from phalanx.types import Duel, Member

    duel = Duel(f"d{number}", Instruction("i", instruction), "left", "right")
    asked = judge_requests(
        duel, (response, ""), Member("judge", ""), JudgeSettings(), seed_parts=("bench",)
    )
    return asked[0].messages[-1].content


def _pairs(
    texts: list[str],
    sides: list[list[int]],
    answers: dict[tuple[int, int], str],
    scores: dict[tuple[int, int], list[float]],
    drawn: random.Random,
) -> tuple[list[PreferencePair], int]:
    """All duels become pairs, so that both sides train on as many; ties are drawn at random."""
    pairs, decided = [], 0
    for duel, (left, right) in enumerate(sides):
        means = [sum(s) / len(s) if s else 0.0 for s in (scores[duel, left], scores[duel, right])]
        decided += means[0] != means[1]
        won = means[0] > means[1] if means[0] != means[1] else drawn.random() < 0.5
        better, worse = (left, right) if won else (right, left)
        instruction = Instruction(f"i{duel}", texts[duel])
        chosen, rejected = answers[duel, better], answers[duel, worse]
        pairs.append(PreferencePair(f"p{duel}", instruction, chosen, rejected))
    return pairs, decided


def main() -> None:
    side, given, out = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
    given |= {"model": Path(given["model"]), "scratch": Path(given["scratch"])}
    setting = Setting(**given)
    if side == "plain":
        before = json.loads((setting.scratch / "ours.json").read_text(encoding="utf-8"))
        found = plainly(setting, before["pairs"])
    else:
        found = ours(setting)
    out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
