"""A run leaves out what overlaps its evaluation items, says so, and goes on as it began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError, LedgerError
from phalanx.evaluate import load_tasks
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import Session, align, guard
from phalanx.plan.make import check
from phalanx.progress import Silent
from phalanx.recruit import _left_out, draw_demonstrations
from phalanx.report.facts import gather
from phalanx.report.html import notes
from phalanx.report.terminal import summary
from phalanx.sources import instructions_from
from tests.report.test_renderers import printed
from tests.scripts import write_rows

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ROOT / "configs/smoke/rubric.yaml"


class Heard(Silent):
    """A progress that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Overrides: sixty instructions, two of which are the task's questions in other words' case."""
    asked = [f"Which town number {n} has the most bridges of all that we know?" for n in range(4)]
    own = [f"Tell me something about item {n}." for n in range(58)]
    texts = [*own[:20], asked[1].upper(), *own[20:], f"Please answer: {asked[3]} Be short."]
    mine = [{"id": f"q{n}", "instruction": text} for n, text in enumerate(texts)]
    source = write_rows(tmp_path / "mine.jsonl", mine)
    rows = [{"id": f"t{n}", "instruction": text, "answer": "x"} for n, text in enumerate(asked)]
    items = write_rows(tmp_path / "items.jsonl", rows)
    tasks = json.dumps([{"name": "towns", "source": str(items)}])
    return [f"instructions.source={source}", "instructions.domains=[]", "match.duels=6",
            "iterations=1", f"evaluate.tasks={tasks}"]  # fmt: skip


def run(folder: Path, given: list[str]) -> Heard:
    heard = Heard()
    align(load(SMOKE, given), folder, progress=heard)
    return heard


def test_they_are_left_out_and_told_everywhere(files, tmp_path):
    heard = run(tmp_path / "run", files)
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        ids = {row["id"] for row in ledger.query("SELECT id FROM instructions")}
        facts = gather(ledger)
    assert {"q20", "q59"} & ids == set()
    assert len(ids) == 58
    (found,) = facts.overlaps
    assert [(one.text, one.item, one.exact) for one in found.found] == [
        ("q20", "t1", True), ("q59", "t3", False)
    ]  # fmt: skip
    line = "2 of 60 instructions overlap evaluation items and are left out (2 of task towns)"
    assert sum(line in said for said in heard.said) == 1
    shown = printed(summary(facts), width=200)
    assert line in shown
    assert "q20 is item t1 of towns: Which town number 1 has the most bridges…" in shown
    assert f"{line}." in notes(facts)


def test_a_run_goes_on_and_says_it_once(files, tmp_path):
    run(tmp_path / "run", files)
    heard = run(tmp_path / "run", files)
    assert not [said for said in heard.said if "overlap" in said]
    with pytest.raises(LedgerError, match="contamination was 'drop' and is now 'report'"):
        run(tmp_path / "run", [*files, "instructions.contamination=report"])


def test_bad_rows_that_a_task_skips_are_told_and_kept_in_the_ledger(files, tmp_path):
    rows = [{"instruction": "Which town is it?", "answer": "x"}, {"instruction": "Which one?"}]
    items = write_rows(tmp_path / "bad.jsonl", rows)
    task = {"name": "towns", "source": str(items), "bad_rows": "skip"}
    heard = run(tmp_path / "run", [*files[:-1], f"evaluate.tasks={json.dumps([task])}"])
    note = "task towns: skipped 1 of 2 rows\n  line 2: no answer"
    assert f"Note: {note}" in heard.said
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert json.loads(ledger.get("skipped_items") or "") == [note]


@pytest.mark.parametrize(("mode", "told"), [("report", True), ("off", False)])
def test_they_are_kept_where_that_is_wanted(files, tmp_path, mode, told):
    heard = run(tmp_path / "run", [*files, f"instructions.contamination={mode}"])
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("instructions") == 60
        assert bool(gather(ledger).overlaps) is told
    assert any("overlap evaluation items and are kept" in said for said in heard.said) is told


def test_nothing_left_is_refused_before_anything_is_asked(files, tmp_path):
    asked = [f"Which town number {n} has the most bridges of all that we know?" for n in range(4)]
    source = write_rows(tmp_path / "all.jsonl", [{"instruction": text} for text in asked])
    given = [*files, f"instructions.source={source}"]
    with pytest.raises(ConfigError, match="all 4 instructions overlap evaluation items"):
        run(tmp_path / "run", given)
    code, text = check(SMOKE, given)
    assert code == 2
    assert "all 4 instructions overlap evaluation items" in text


def test_check_says_how_many_and_which_and_counts_the_rest(files):
    code, text = check(SMOKE, files, width=200)
    assert code == 0
    assert "2 of 60 instructions overlap evaluation items and are left out" in text
    assert "q59 contains item t3 of towns" in text
    assert "58" in text
    assert "overlap" not in check(SMOKE, [*files, "instructions.contamination=off"])[1]


def test_the_demo_loses_nothing():
    for preset in ("preset:demo", "preset:demo-quick"):
        code, text = check(preset)
        assert code == 0
        assert "overlap" not in text


def test_recruits_do_not_learn_what_they_are_asked(tmp_path):
    rows = [{"instruction": f"What is the plural of word number {n}?", "response": "x",
             "domain": "d"} for n in range(6)]  # fmt: skip
    data = write_rows(tmp_path / "rows.jsonl", rows)
    settings = load(
        "preset:demo", [f"pool.recruit.data={data}", 'pool.recruit.specialists={"ada": ["d"]}',
                        'pool.members=[]']
    ).pool.recruit  # fmt: skip
    assert settings is not None
    every = draw_demonstrations(settings, "ada", 0)
    some = draw_demonstrations(settings, "ada", 0, {every[0].id})
    assert len(every) == 6
    assert {row.id for row in every} - {row.id for row in some} == {every[0].id}
    with pytest.raises(ConfigError, match="all rows of the domain 'd'"):
        draw_demonstrations(settings, "ada", 0, {row.id for row in every})


def test_demonstrations_of_a_file_are_guarded_like_instructions(files, tmp_path):
    """Recruits of a run learn from the rest; a file of which nothing is left is refused."""
    asked = [f"Which town number {n} has the most bridges of all that we know?" for n in range(4)]
    rows = [{"instruction": text, "response": "x", "domain": "d"}
            for text in [*asked[:2], "What is nine?"]]  # fmt: skip
    data = write_rows(tmp_path / "rows.jsonl", rows)
    source = tmp_path / "recruits.yaml"
    source.write_text(
        "pool: {base: 'builtin:smollm2-135m', recruit: {specialists: "
        "{eve: [d], flo: [d], gus: [d]}}}\n"
    )
    given = [*files, f"pool.recruit.data={data}"]
    config = load(source, given)
    session = Session(config, tmp_path, None, None, Heard(), bool)  # type: ignore[arg-type]
    session.items = load_tasks(config)
    found = guard(session, instructions_from(config.instructions).instructions)
    assert [len(one.found) for one in found] == [2, 2]
    assert session.left_out == found[1].ids
    assert len(session.instructions) == 58
    kept = draw_demonstrations(config.pool.recruit, "eve", 0, session.left_out)
    assert [row.prompt for row in kept] == ["What is nine?"]
    code, text = check(source, given, width=200)
    assert code == 0, text
    assert "2 of 3 demonstrations overlap evaluation items and are left out" in text
    write_rows(data, rows[:2])
    with pytest.raises(ConfigError, match="all 2 demonstrations overlap evaluation items"):
        guard(session, instructions_from(config.instructions).instructions)


def test_who_does_not_look_for_overlaps_loads_no_task_to_recruit(files, tmp_path):
    """Rows of a task may need the hub or a sandbox, which recruiting has no use for."""
    row = {"instruction": "What is nine?", "response": "x", "domain": "d"}
    data = write_rows(tmp_path / "rows.jsonl", [row])
    given = [*files, f"pool.recruit.data={data}", 'pool.recruit.specialists={"ada": ["d"]}']
    looking, not_looking = (
        load("preset:demo", [*given, "pool.members=[]", f"instructions.contamination={word}"])
        for word in ("drop", "off")
    )
    for file in tmp_path.glob("*.jsonl"):
        if file != data:
            file.unlink()
    with pytest.raises(ConfigError):
        _left_out(looking, looking.pool.recruit, Heard())
    assert not _left_out(not_looking, not_looking.pool.recruit, Heard())
