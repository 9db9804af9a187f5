"""Iterations that are refused, or leave a learner as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.progress import Silent
from tests.scripts import write_rows
from tests.tiny import make_tiny

WRITTEN = "  - {when: ., reply: [Seven., Nine., Eight., Ten., Four.]}\n"


class Listening(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def configuration(folder: Path, script: str, student: dict, reward: str, **more):
    path = folder / "script.yaml"
    path.write_text(script, encoding="utf-8")
    scripted = [
        {"name": name, "engine": "scripted", "model": f"script:{path}", "roles": ["judge"]}
        for name in ("ada", "bob", "cora")
    ]
    return load(
        "preset:moaa",
        {
            "iterations": 1,
            "seed": 3,
            "pool.members": [*scripted, {"roles": ["contest", "learn"], **student}],
            "instructions.source": "builtin:skills",
            "mixture": {"proposers": ["ada", "bob"], "aggregator": "cora"},
            "moaa.stages": ["dpo"],
            "moaa.students": [{"name": "dan", "reward": reward}],
            "moaa.dpo_instructions": 4,
            "reward.samples": 4,
            "resources.threads": 1,
            **more,
        },
    )


SCRIPTED = {"name": "dan", "engine": "scripted"}


@pytest.mark.parametrize("method", ["sparta", "rejection_sampling"])
def test_a_run_says_once_that_nobody_can_learn(method, tmp_path):
    given = load(f"configs/smoke/{'rubric' if method == 'sparta' else method}.yaml",
                 {"train.method": "dpo"})  # fmt: skip
    first, again = Listening(), Listening()
    align(given, tmp_path / "run", progress=first)
    align(given, tmp_path / "run", progress=again)
    told = [text for text in first.said if text.startswith("Note: ") and "weights" in text]
    assert len(told) == 1
    assert not [text for text in again.said if text.startswith("Note: ")]


def test_scores_that_cannot_be_read_stop_a_stage_though_best_and_worst_can(tmp_path):
    script = (
        "sampling:\n"
        "  - {when: '<<<response \\w+>>>\\nSeven', purpose: judge, reply: '{\"score\": 9}'}\n"
        "  - {when: '<<<response \\w+>>>\\nNine', purpose: judge, reply: '{\"score\": 2}'}\n"
        "  - {when: ., purpose: judge, reply: Good!}\n"
    ) + WRITTEN
    config = configuration(
        tmp_path, script, {**SCRIPTED, "model": f"script:{tmp_path / 'script.yaml'}"}, "cora",
        **{"judge.protocol": "rubric", "judge.max_unreadable": 0.3, "train.method": "none",
           "reward.samples": 16},
    )  # fmt: skip
    with pytest.raises(JudgmentError, match=r"scores could not be .*judge\.protocol: expec"):
        align(config, tmp_path / "run")


def test_verdicts_of_the_mixture_that_cannot_be_read_point_to_its_own_setting(tmp_path):
    script = (
        "sampling:\n"
        "  - {when: 'Response [AB]:\\n<<<response [AB] \\w+>>>\\nSeven', purpose: verdict, "
        "reply: '[[C]]'}\n"
        "  - {when: ., purpose: verdict, reply: Hm.}\n"
    ) + WRITTEN
    config = configuration(
        tmp_path, script, {**SCRIPTED, "model": f"script:{tmp_path / 'script.yaml'}"}, "moa",
        **{"reward.verdict": "written", "train.method": "none", "judge.max_unreadable": 0.3,
           "reward.samples": 8},
    )  # fmt: skip
    with pytest.raises(JudgmentError, match=r"judgments could not be read .*reward\.verdict: op"):
        align(config, tmp_path / "run")


@pytest.mark.slow
def test_a_student_whose_samples_all_tie_keeps_its_version_and_is_not_measured_anew(tmp_path):
    script = "sampling:\n  - {when: ., purpose: verdict, reply: '[[C]]'}\n" + WRITTEN
    student = {"name": "dan", "model": str(make_tiny(tmp_path / "base", seed=1))}
    config = configuration(
        tmp_path, script, student, "moa",
        **{"reward.verdict": "written", "iterations": 2, "pairs.truncated": "allow",
           "reward.sample.max_new_tokens": 8, "evaluate.max_new_tokens": 4,
           "evaluate.tasks": [{"name": "skills", "source": "builtin:skills", "limit": 2}]},
    )  # fmt: skip
    heard = Listening()
    align(config, tmp_path / "run", progress=heard)
    notes = [text for text in heard.said if text.startswith("Note: dan had nothing to learn")]
    assert [f"in iteration {n} and stays as it was (dropped: 4 tie)" in notes[n - 1]
            for n in (1, 2)] == [True, True]  # fmt: skip
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.get("finished")
        assert [member.version for member in ledger.members() if member.name == "dan"] == [0]
        for number in range(3):  # as it was at the start of the run, whenever one looks
            assert len(ledger.members(number)) == 4
        rows = ledger.query("SELECT iteration, member, version, num_examples FROM trainings")
        assert [tuple(row.values()) for row in rows] == [(1, "dan", 0, 0), (2, "dan", 0, 0)]
        asked = "iteration = ? AND member = 'dan' AND purpose = 'evaluate'"
        assert [ledger.count("responses", asked, (n,)) > 0 for n in range(3)] == [
            True,
            False,
            False,
        ]
        measured = ledger.query("SELECT DISTINCT iteration FROM evaluations WHERE member = 'dan'")
        assert [row["iteration"] for row in measured] == [0, 1, 2]
    again = Listening()
    align(config, tmp_path / "run", progress=again)
    assert not [text for text in again.said if "nothing to learn" in text]


def rival(folder: Path, method: str, **more) -> Listening:
    """What is said in a run of one iteration, whose first learner has weights."""
    writer = {"name": "ada", "model": str(make_tiny(folder / "base", seed=1)), "roles": ["learn"]}
    given = {
        "pool": {"members": [writer]},
        "method": method,
        "iterations": 1,
        "resources.threads": 1,
        **more,
    }
    (folder / "config.yaml").write_text("seed: 3\n", encoding="utf-8")
    heard = Listening()
    align(load(folder / "config.yaml", given), folder / "run", progress=heard)
    return heard


def test_pairs_of_a_file_that_all_drop_are_counted_and_no_judgment_is_spoken_of(tmp_path):
    rows = [{"prompt": f"Say {n}.", "chosen": f"{n} " * 9, "rejected": f"{n}"} for n in range(3)]
    pairs = write_rows(tmp_path / "pairs.jsonl", rows)
    own = {"source": str(pairs)}
    heard = rival(
        tmp_path, "preference_file", preference_file=own, **{"pairs.max_length_ratio": 1.0}
    )
    (note,) = [text for text in heard.said if "nothing to learn" in text]
    assert note.endswith("(dropped: 3 length); where texts are too long, raise the limit")


def test_spin_has_responses_to_look_at_and_no_judgments(tmp_path):
    rows = [{"instruction": f"Say {n}.", "answer": f"{n} " * 9} for n in range(3)]
    answered = write_rows(tmp_path / "answered.jsonl", rows)
    heard = rival(
        tmp_path, "spin",
        **{"instructions.source": str(answered), "spin.sample.max_new_tokens": 2,
           "train.max_length": 8},
    )  # fmt: skip
    (note,) = [text for text in heard.said if "nothing to learn" in text]
    assert (
        "(dropped: 3 prompt_too_long); look at the responses (phalanx export RUN responses)" in note
    )
    assert "judgments" not in note
