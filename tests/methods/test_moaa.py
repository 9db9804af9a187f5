"""Which instructions a stage of MoAA works on."""

from __future__ import annotations

import json

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods.moaa import draw
from tests.collective.hearings import instruction, settings
from tests.test_loop import ROOT


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_no_instruction_is_drawn_twice_in_a_stage(number):
    three = [instruction(n) for n in range(3)]
    config = settings(moaa={"sft_instructions": 5, "dpo_instructions": 7})
    drawn = draw(config, three, number)
    assert sorted(item.id for item in drawn) == ["i0", "i1", "i2"]


def test_stages_of_a_generation_draw_apart_and_generations_draw_anew():
    config = settings(moaa={"sft_instructions": 4, "dpo_instructions": 3})
    ten = [instruction(n) for n in range(10)]
    drawn = [[item.id for item in draw(config, ten, number)] for number in (1, 2, 3, 4)]
    assert [len(ids) for ids in drawn] == [4, 3, 4, 3]
    assert not {*drawn[0]} & {*drawn[2]}
    assert not {*drawn[1]} & {*drawn[3]}


def test_without_instructions_there_is_nothing_to_draw():
    with pytest.raises(ConfigError, match="no instructions"):
        draw(settings(), [], 1)


def test_a_file_with_fewer_rows_than_a_stage_wants_makes_a_whole_run(tmp_path):
    """Both stages rank: teachers' answers (best_of), and students' own."""
    rows = [json.dumps({"id": f"i{n}", "instruction": f"Name a prime, not {n}."}) for n in range(3)]
    path = tmp_path / "three.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    align(
        load(ROOT / "configs/smoke/moaa.yaml", {"instructions.source": str(path)}),
        tmp_path / "run",
    )
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.get("finished")
        for builder, count in (("mixture", 3), ("combined", 9), ("best_of", 3)):
            where = "iteration = ? AND builder = ?"
            assert ledger.count("demonstrations", where, (1, builder)) == count
        assert ledger.count("pairs", "iteration = 2 AND chosen_member = 'student'") == 3


def test_the_shipped_script_repairs_conversations(tmp_path):
    """Some turns fit, some are rewritten: both ways are gone in a run without models."""
    path = ROOT / "configs/smoke/conversations.jsonl"
    overrides = {"instructions.source": str(path), "moaa.multi_turn": "rewrite"}
    align(load(ROOT / "configs/smoke/moaa.yaml", overrides), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.get("finished")
        asked = ledger.count("responses", "purpose = 'fit' AND status = 'done'")
        rewritten = ledger.count("responses", "purpose = 'rewrite' AND status = 'done'")
        assert 0 < rewritten < asked / 2
        assert ledger.count("demonstrations", "turn = 1 AND dropped = ''") > 0


def test_the_smoke_configuration_runs_and_adds_up(tmp_path):
    config = load(ROOT / "configs/smoke/moaa.yaml")
    align(config, tmp_path / "run")
    wanted = {"sft": config.moaa.sft_instructions, "dpo": config.moaa.dpo_instructions}
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        for number, kind in enumerate(["sft", "dpo"] * 2, start=1):
            at = (number,)
            duels = ledger.count("duels", "iteration = ?", at)
            assert duels > 0
            assert ledger.count("outcomes", "iteration = ?", at) == duels
            assert ledger.count("judgments", "iteration = ?", at) == duels
            if kind == "dpo":  # two students have a reward
                assert ledger.count("pairs", "iteration = ?", at) == 2 * wanted[kind]
            else:
                where = "iteration = ? AND turn = 0 AND builder = 'mixture'"
                assert ledger.count("demonstrations", where, at) == wanted[kind]
