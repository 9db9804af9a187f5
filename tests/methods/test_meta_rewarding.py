"""Meta-Rewarding on the scripted engine: length control, and judgments that are judged."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from phalanx.config import Config, load
from phalanx.config.rules import faults, notes
from phalanx.errors import ConfigError, JudgmentError
from phalanx.identity import content_id
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align, stored_pairs
from phalanx.methods import METHODS
from phalanx.methods.meta_rewarding import lesson, rho_of, run
from phalanx.types import Instruction
from tests.methods.rivals import SMOKE, Asked, golden, start, told

ITEMS = [Instruction("i1", "Name a prime."), Instruction("i2", "Name a river.")]
LONG = "Good, and then a good deal more than was asked."
STRICT = "Strictly seen it does not.\nScore: 1"
FAIR = "It answers most of it.\nScore: 3"
KIND = "How nice.\nScore: 5"


def says(text: str, reply) -> dict:
    return {"when": rf"<<<response \w+>>>\n{text}\n", "purpose": "judge", "reply": reply}


def verdict(first: str, second: str, reply: str) -> dict:
    when = rf"<<<review A \w+>>>\n{first}.*<<<review B \w+>>>\n{second}"
    return {"when": when, "purpose": "meta_judge", "reply": reply}


LIKES_FAIR = [
    verdict("It answers", ".", "[[A]]"),
    verdict(".", "It answers", "[[B]]"),
    verdict("Strictly", ".", "[[A]]"),
    verdict(".", "Strictly", "[[B]]"),
]
JUDGING = [
    says("Good", KIND),
    says(LONG, KIND),
    says("Fair", [STRICT, FAIR, KIND]),
    says("Poor", STRICT),
]


def script(samples=("Good", "Fair", "Poor"), judging=(), verdicts=()) -> dict:
    written = {"when": ".", "purpose": "sample", "reply": list(samples)}
    return {"sampling": [*(judging or JUDGING), *(verdicts or LIKES_FAIR), written]}


def configuration(**section) -> Config:
    section = {"samples": 6, "judgments": 4, **section}
    return Config.model_validate({"method": "meta_rewarding", "seed": 7, "meta_rewarding": section})


def done(asked: Asked, config: Config, names=("ada",), items=ITEMS, **changes):
    return run(start(config, names, items, **changes), asked, config)


def of_judging(result):
    return [pair for pair in result.pairs if pair.instruction.domain == "judging"]


def of_responses(result):
    return [pair for pair in result.pairs if pair.instruction.domain != "judging"]


def test_golden_transcript():
    asked = Asked(script(("Fair", "Poor")))
    result = done(asked, configuration(samples=2, judgments=3), items=ITEMS[:1])
    golden("meta_rewarding", told(asked, result))


def test_judging_is_learned_in_the_first_iterations_alone():
    for number, phases in (
        (1, ["sample", "judge", "meta-judge"]),
        (2, ["sample", "judge", "meta-judge"]),
        (3, ["sample", "judge"]),
    ):
        asked = Asked(script())
        result = done(asked, configuration(samples=12, judgments=8), number=number)
        assert asked.phases == phases
        assert bool(of_judging(result)) == (number < 3)
        assert bool(result.prompts) == (number < 3)
        assert ("meta.asked" in result.metrics) == (number < 3)
    assert lesson(configuration(), 9, "ada") == "own pairs"


def test_rho_is_that_of_the_iteration_and_the_last_one_goes_on():
    assert [rho_of(configuration(), n) for n in range(1, 7)] == [0, 0.32, 0.32, 0.4, 0.4, 0.4]
    assert rho_of(configuration(length_control=[0.2]), 5) == 0.2


def test_of_equally_good_responses_the_shorter_is_chosen():
    result = done(Asked(script((LONG, "Good", "Poor"))), configuration(samples=12))
    assert {(pair.chosen, pair.rejected) for pair in of_responses(result)} == {("Good", "Poor")}


def test_length_control_takes_a_shorter_one_that_is_nearly_as_good():
    """5 for the long one and 4 for the short one: within rho 0.32, and not with rho 0."""
    judging = [says(LONG, KIND), says("Good", "Well.\nScore: 4"), says("Poor", STRICT)]
    for number, chosen in ((1, LONG), (2, "Good")):
        config = configuration(samples=24, judge_iterations=0)
        result = done(Asked(script((LONG, "Good", "Poor"), judging)), config, number=number)
        assert {pair.chosen for pair in result.pairs} == {chosen}
        assert result.metrics["length_control"] == rho_of(config, number)


def test_where_control_would_turn_a_pair_round_it_is_dropped():
    judging = [says(LONG, KIND), says("Poor", STRICT)]
    config = configuration(samples=8, judge_iterations=0, length_control=[1.0])
    result = done(Asked(script((LONG, "Poor"), judging)), config)
    assert {(p.chosen, p.rejected, p.drop) for p in result.pairs} == {(LONG, "Poor", "length")}
    assert result.metrics["num_dropped.length"] == 2


def test_the_judgments_that_vary_most_are_judged_and_best_over_worst_is_learned():
    asked = Asked(script())
    result = done(asked, configuration(samples=12, judgments=8))
    prompts = {r.messages[-1].content for r in asked.requests if r.purpose == "judge"}
    pairs = of_judging(result)
    assert [pair.drop for pair in pairs] == ["", ""]
    for pair in pairs:
        # Of the best and the worst response all judgments agree; of the middle one they do not.
        assert re.search(r"<<<response \w+>>>\nFair\n", pair.instruction.text)
        assert pair.instruction.text in prompts
        assert (pair.chosen, pair.rejected) == (FAIR, KIND)
        assert pair.chosen_member == pair.rejected_member == "ada"
    assert list(result.prompts) == [pair.instruction for pair in pairs]
    assert result.prompts[0].id == content_id("judging", result.prompts[0].text)


def test_what_the_meta_judge_does_is_counted():
    result = done(Asked(script()), configuration(samples=12, judgments=8))
    metrics = result.metrics
    assert metrics["meta.contests"] == 2
    assert metrics["meta.asked"] == 2 * 3 * 2
    assert metrics["meta.unreadable"] == 0
    assert metrics["meta.first_place"] == 0.5
    # Fair over strict is the higher score, fair over kind and strict over kind are not.
    assert metrics["meta.follows_score"] == pytest.approx(1 / 3)
    assert metrics["num_judgment_pairs"] == 2
    assert metrics["num_pairs"] == len([pair for pair in result.pairs if not pair.drop]) == 4


def test_a_meta_judge_that_always_names_one_place_makes_no_pair():
    verdicts = [verdict(".", ".", "[[A]]")]
    result = done(
        Asked(script(verdicts=verdicts)), configuration(samples=12, judgments=8), ("ada", "bob")
    )
    assert {pair.drop for pair in of_judging(result)} == {"tie"}
    assert result.metrics["meta.first_place"] == 1.0
    assert result.metrics["num_judgment_pairs_dropped"] == len(of_judging(result)) == 4
    kept = [pair for pair in result.pairs if not pair.drop]
    assert len(result.pairs) == len(kept) + result.metrics["num_dropped.tie"]


def test_a_verdict_that_cannot_be_read_is_missing():
    verdicts = [verdict(".", ".", "Both are good.")]
    result = done(Asked(script(verdicts=verdicts)), configuration(samples=12, judgments=8))
    assert {pair.drop for pair in of_judging(result)} == {"unscored"}
    assert result.metrics["meta.unreadable"] == result.metrics["meta.asked"] > 0
    assert "meta.first_place" not in result.metrics
    assert all(not pair.drop for pair in of_responses(result))


def test_judgments_that_agree_meet_no_meta_judge():
    judging = [says("Good", KIND), says("Fair", FAIR), says("Poor", STRICT)]
    asked = Asked(script(judging=judging))
    result = done(asked, configuration(samples=12))
    assert "meta-judge" not in asked.phases
    assert not of_judging(result)
    assert result.metrics["meta.contests"] == result.metrics["meta.asked"] == 0


def test_nobody_judges_the_judgments_of_another():
    asked = Asked(script())
    result = done(asked, configuration(samples=12, judgments=8), ("ada", "bob"))
    meta = [request for request in asked.requests if request.purpose == "meta_judge"]
    own = {pair.instruction.text: pair.chosen_member for pair in of_judging(result)}
    assert len(own) == 4
    for request in meta:
        (task,) = [prompt for prompt in own if prompt in request.messages[-1].content]
        assert own[task] == request.member.name


def test_the_same_call_again_asks_and_finds_the_same():
    first, again = Asked(script()), Asked(script())
    config = configuration()
    assert done(first, config, ("ada", "bob")) == done(again, config, ("ada", "bob"))
    assert [request.id for request in first.requests] == [r.id for r in again.requests]
    assert len({request.id for request in first.requests}) == len(first.requests)


def test_standings_are_carried_over():
    config = configuration()
    begun = replace(start(config, ["ada"], ITEMS), reliability={"ada": 0.8}, faded={"ada": 1.0})
    result = run(begun, Asked(script()), config)
    assert (result.standings, result.reliability) == (begun.standings, {"ada": 0.8})
    assert result.faded == {"ada": 1.0}


# The configuration and whole runs -----------------------------------------------------------------


def smoke(**changes) -> Config:
    return load(SMOKE / "meta_rewarding.yaml", changes)


def test_what_cannot_work_is_refused_in_one_message():
    with pytest.raises(ConfigError) as caught:
        smoke(**{"meta_rewarding.judgments": 1, "meta_rewarding.length_control": [0.2, 1.5]})
    assert "two judgments of one response" in str(caught.value)
    assert "1.5 is not a share" in str(caught.value)
    with pytest.raises(ConfigError, match="is empty; expected rho"):
        smoke(**{"meta_rewarding.length_control": []})
    assert (
        faults(smoke(**{"meta_rewarding.judgments": 1, "meta_rewarding.judge_iterations": 0})) == []
    )


def test_judgments_too_long_to_learn_are_told_of():
    config = smoke(**{"train.method": "dpo", "meta_rewarding.judge.max_new_tokens": 4000})
    assert any("meta_rewarding.judge.max_new_tokens = 4000" in note for note in notes(config))


def test_the_smoke_configuration_runs_and_continues(tmp_path):
    folder = align(smoke(), tmp_path / "run")
    align(smoke(), folder)
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("method") == "meta_rewarding"
        phases = ledger.query("SELECT iteration, phase FROM phases ORDER BY 1, 2")
        meta = {row["iteration"] for row in phases if row["phase"] == "meta-judge"}
        assert meta == {1, 2}
        judging = [pair for pair in stored_pairs(ledger, 1) if pair.instruction.domain == "judging"]
        assert judging
        rows = ledger.query(
            "SELECT full_messages(messages) AS messages FROM responses WHERE phase = 'judge'"
        )
        asked = {json.loads(row["messages"])[-1]["content"] for row in rows}
        assert {pair.instruction.text for pair in judging} <= asked  # learned as it was asked


def test_verdicts_that_cannot_be_read_stop_the_run(tmp_path):
    script = tmp_path / "mute.yaml"
    script.write_text(
        "sampling:\n"
        '  - {when: ., purpose: judge, reply: ["Score: 2", "Score: 3", "Score: 4"]}\n'
        "  - {when: ., purpose: meta_judge, reply: Both are good.}\n"
        "  - {when: ., reply: [One., Two., Three.]}\n"
    )
    pool = [{"name": "ada", "engine": "scripted", "model": f"script:{script}"}]
    with pytest.raises(JudgmentError, match="verdicts on judgments could not be read"):
        align(smoke(**{"pool.members": pool}), tmp_path / "run")


@pytest.mark.real
def test_one_step_on_the_embedded_model(tmp_path):
    """So small a model writes no judgment that can be read; nothing is invented for it."""
    source = tmp_path / "items.jsonl"
    source.write_text('{"id": "a", "instruction": "Name a tree."}\n')
    settings = {
        "method": "meta_rewarding",
        "iterations": 1,
        "pool": {"base": "builtin:smollm2-135m", "members": [{"name": "ada"}]},
        "instructions": {"source": str(source)},
        "meta_rewarding": {
            "samples": 2,
            "judgments": 2,
            "sample": {"max_new_tokens": 4},
            "judge": {"max_new_tokens": 4},
        },
        "judge": {"max_unreadable": 1.0},
        "pairs": {"truncated": "allow"},
        "train": {"learning_rate": 1e-4, "lora": {"rank": 4}},
        "resources": {"threads": 1},
    }
    folder = align(Config.model_validate(settings), tmp_path / "run")
    with Ledger(run_ledger_path(folder)) as ledger:
        metrics = ledger.state(1)["metrics"]
        rows = ledger.query("SELECT dropped FROM pairs")
        version = ledger.members(1)[0].version
        assert ledger.count("responses", "status = 'failed'") == 0
    assert metrics["num_samples"] == 2
    assert metrics["scores.asked"] == 2 * 2
    kept = sum(not row["dropped"] for row in rows)
    assert metrics["num_pairs"] == kept
    assert kept or {row["dropped"] for row in rows} <= {"unscored", "tie"}
    assert version == (kept > 0)


def test_it_is_in_the_list():
    assert METHODS["meta_rewarding"].kind == "single"
