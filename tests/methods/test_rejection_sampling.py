"""Rejection sampling: the best of a learner's own responses becomes a demonstration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phalanx.config import Config, load
from phalanx.config.rules import faults, notes
from phalanx.errors import JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import METHODS
from phalanx.methods.rejection_sampling import METHOD, run
from phalanx.types import Instruction
from tests.methods.rivals import SMOKE, Asked, golden, start, told

WRITTEN = {"when": ".", "purpose": "sample", "reply": ["Seven.", "Nine.", "Eight, say."]}
SCORES = [
    {"when": "Seven", "purpose": "judge", "reply": '{"score": 9}'},
    {"when": "Nine", "purpose": "judge", "reply": '{"score": 4}'},
    {"when": ".", "purpose": "judge", "reply": '{"score": 2}'},
]
SCRIPT = {"sampling": [WRITTEN, *SCORES]}
ITEMS = [Instruction(f"i{n}", f"Name a prime, not {n}.", "primes") for n in range(6)]
VALUE = {"Seven.": 9, "Nine.": 4, "Eight, say.": 2}


def config(**changes) -> Config:
    own = {"instructions": 2, "samples": 4, **changes.pop("own", {})}
    return Config.model_validate(
        {"method": "rejection_sampling", "rejection_sampling": own, **changes}
    )


def ran(script=SCRIPT, names=("ada", "bob"), number=1, roles=None, **changes):
    chosen = config(**changes)
    begin = start(chosen, names, METHOD.draw(chosen, ITEMS, number), number)
    members = tuple(
        replace(member, roles=(roles or {}).get(member.name, member.roles))
        for member in begin.members
    )
    asked = Asked(script)
    return asked, run(replace(begin, members=members), asked, chosen)


def test_golden_transcript():
    golden("rejection_sampling", told(*ran(own={"samples": 3})))


def test_the_best_is_learned_by_its_writer():
    asked, result = ran(own={"instructions": 6})
    texts = {r.id: r for r in asked.requests if r.purpose == "sample"}
    replies = dict(zip([r.id for r in asked.requests], asked.lines, strict=True))
    for row in result.demonstrations:
        assert row.builder == row.writer == texts[row.response_id].member.name
        assert row.domain == "primes"
        assert row.prompt.startswith("Name a prime")
        group = [
            replies[key].split(" -> ")[1]
            for key, request in texts.items()
            if request.member.name == row.writer and request.messages[-1].content == row.prompt
        ]
        assert len(group) == 4
        assert VALUE[row.response] == max(VALUE[text] for text in group)
    assert len(result.demonstrations) == 12
    assert METHODS["rejection_sampling"].lesson(config(), 1, "ada") == "demonstrations:ada"


def test_mean_scores_of_all_and_of_the_best():
    _, result = ran(
        names=["ada", "cora"], roles={"cora": ("judge",)}, own={"judge": "cora", "instructions": 6}
    )
    assert result.metrics["score.best.cora"] > result.metrics["score.mean.cora"]
    # Four of three texts: the best one is there almost always.
    assert 4 < result.metrics["score.best.cora"] <= 9


def test_judges_have_one_voice_each():
    """Two of three judges like Nine best, the third one hates it on a scale of its own."""
    rules = [
        WRITTEN,
        *({"when": w, "member": "bob", "reply": f'{{"score": {s}}}'}
          for w, s in (("Seven", 10), ("Nine", 1), (".", 2))),
        *({"when": w, "reply": f'{{"score": {s}}}'}
          for w, s in (("Seven", 4), ("Nine", 5), (".", 3))),
    ]  # fmt: skip
    judge = ("judge",)
    _, result = ran(
        script={"sampling": rules},
        names=["ada", "bob", "cora", "dan"],
        roles={"bob": judge, "cora": judge, "dan": judge},
        own={"instructions": 6, "samples": 12},
    )
    assert {row.response for row in result.demonstrations} == {"Nine."}


def test_with_one_judge_the_highest_score_is_best():
    """Seven is above Nine more often than not; Nine's expected score, 7, is higher all the same."""
    rules = [
        {"when": "Seven", "weights": {"6": 1}},
        {"when": "Nine", "weights": {"5": 3, "10": 2}},
        {"when": ".", "weights": {"1": 1}},
    ]
    _, result = ran(
        script={"sampling": [WRITTEN], "options": rules},
        names=["ada", "bob"],
        roles={"bob": ("judge",)},
        judge={"protocol": "expected"},
        own={"instructions": 6, "samples": 12},
    )
    assert {row.response for row in result.demonstrations} == {"Nine."}


def test_reasoning_is_neither_judged_nor_learned():
    rules = [{**WRITTEN, "reply": "<think>Is 7 prime? Yes.</think>Seven."}, *SCORES]
    asked, result = ran(script={"sampling": rules})
    assert {row.response for row in result.demonstrations} == {"Seven."}
    assert not [r for r in asked.requests if r.purpose == "judge"]  # all are the same


@pytest.mark.parametrize(
    ("rules", "drop"),
    [
        ([{**WRITTEN, "reply": " "}, *SCORES], "empty"),
        ([{**WRITTEN, "finish": "length"}, *SCORES], "truncated"),
        ([WRITTEN, {"when": ".", "reply": "no idea"}], "unscored"),
    ],
)
def test_groups_without_a_best_say_why(rules, drop):
    asked, result = ran(script={"sampling": rules}, own={"instructions": 6})
    dropped = {row.drop for row in result.demonstrations}
    assert drop in dropped
    assert dropped <= {drop, ""}
    assert len(result.demonstrations) == 12
    counts = {k: v for k, v in result.metrics.items() if k.startswith("num_dropped.")}
    assert sum(counts.values()) + result.metrics["num_demonstrations"] == 12
    if drop != "unscored":
        assert not [r for r in asked.requests if r.purpose == "judge"]


def test_a_truncated_response_does_not_compete_with_whole_ones():
    rules = [
        {"when": "not [0-2]", "purpose": "sample", "reply": "Seven", "finish": "length"},
        WRITTEN,
        *SCORES,
    ]
    _, result = ran(script={"sampling": rules}, own={"instructions": 6})
    by_item = {row.instruction: row for row in result.demonstrations if row.writer == "ada"}
    assert {key for key, row in by_item.items() if row.drop} == {"i0", "i1", "i2"}
    _, result = ran(script={"sampling": rules}, own={"instructions": 6, "truncated": "allow"})
    assert not [row for row in result.demonstrations if row.drop]
    assert any(row.truncated for row in result.demonstrations)


def test_one_sample_is_learned_without_a_judge():
    asked, result = ran(own={"samples": 1})
    assert not [row for row in result.demonstrations if row.drop]
    assert {request.purpose for request in asked.requests} == {"sample"}


def test_failed_samples():
    failing = {"when": ".", "purpose": "sample", "fail": {"kind": "engine", "message": "gone"}}
    with pytest.raises(JudgmentError, match=r"'ada' made no demonstration.*failed"):
        ran(script={"sampling": [failing, *SCORES]})
    some = {**failing, "when": "not 0"}
    _, result = ran(script={"sampling": [some, WRITTEN, *SCORES]}, own={"instructions": 6})
    assert {r.drop for r in result.demonstrations if r.instruction == "i0"} == {"failed"}


def test_the_same_call_again_gives_the_same_rows():
    assert ran()[1] == ran()[1]
    assert ran(number=1)[1] != ran(number=2)[1]


def test_rules():
    ada, bob = {"name": "ada", "engine": "scripted"}, {"name": "bob", "engine": "scripted"}
    given = {"pool": {"members": [ada, bob]}, "instructions": {"source": "builtin:skills"}}
    assert faults(config(**given)) == []
    (text,) = faults(config(**given, own={"sample": {"temperature": 0}}))
    assert text.startswith("rejection_sampling.sample.temperature: is 0 (greedy)")
    told_ = notes(config(**given, own={"samples": 1, "sample": {"temperature": 0}}))
    assert any(text.startswith("rejection_sampling.samples: is 1") for text in told_)
    (text,) = faults(config(**given, own={"judge": "bob"}))
    assert text.startswith("rejection_sampling.judge: bob has the role learn")


def test_a_run_is_the_same_in_one_go_and_in_two(tmp_path):
    align(load(SMOKE / "rejection_sampling.yaml"), tmp_path / "whole")
    align(load(SMOKE / "rejection_sampling.yaml", ["iterations=1"]), tmp_path / "parts")
    align(load(SMOKE / "rejection_sampling.yaml"), tmp_path / "parts")
    rows = []
    for name in ("whole", "parts"):
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            rows.append(ledger.contents()["demonstrations"])
    assert rows[0] == rows[1]
    assert len(rows[0]) == 16


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    settings = {
        "method": "rejection_sampling",
        "iterations": 1,
        "pool": {
            "base": "builtin:smollm2-135m",
            "members": [{"name": "ada"}, {"name": "bob", "roles": ["judge"]}],
        },
        "instructions": {"source": "builtin:skills", "limit": 3},
        "rejection_sampling": {
            "samples": 3,
            "sample": {"max_new_tokens": 8, "temperature": 1.0},
            "truncated": "allow",
        },
        "judge": {"protocol": "likelihood"},
        "sft": {"lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        rows = ledger.demonstrations(1, "ada")
        metrics = ledger.state(1)["metrics"]
        assert {member.name: member.version for member in ledger.members(1)} == {"ada": 1, "bob": 0}
    assert len(rows) == 3
    assert not [row for row in rows if row.drop]
    assert metrics["score.best.bob"] > metrics["score.mean.bob"]
