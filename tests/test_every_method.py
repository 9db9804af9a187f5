"""What holds for every method: its files are there, its smoke run works, and a kill loses nothing.

What one method does is in ``tests/methods/test_NAME.py``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from phalanx.config import Config, load
from phalanx.config.rules import faults
from phalanx.config.schema import MethodName
from phalanx.config.uses import ALL_RUNS, ANSWERING, USES, sections_learned, trains
from phalanx.errors import JudgmentError
from phalanx.methods import METHODS, Question
from phalanx.plan import make_plan
from phalanx.plan.rehearsal import Rehearsal, Stand, rehearsal, rehearsed_rounds
from phalanx.plan.stages_table import PHASE_WORDS, stage_tables
from phalanx.plan.work import duel_rounds
from phalanx.pool import members_from
from phalanx.report.methods import KINDS
from phalanx.types import Message, Sampling
from tests.scripts import command

ROOT = Path(__file__).resolve().parent.parent
RIVALS = tuple(name for name in METHODS if name not in ("sparta", "moaa"))
TRAINING = tuple(name for name in RIVALS if METHODS[name].run)
ANSWERS = tuple(name for name in METHODS if METHODS[name].answer)


def smoke(name: str) -> Path:
    """The smoke configuration of a method; duels have several, one for each protocol."""
    return ROOT / "configs" / "smoke" / ("rubric.yaml" if name == "sparta" else f"{name}.yaml")


# Files -------------------------------------------------------------------------------------------


def test_every_name_of_the_configuration_is_a_method() -> None:
    assert set(METHODS) == set(get_args(MethodName)) == set(USES)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_whole(name: str) -> None:
    method = METHODS[name]
    assert method.kind in KINDS
    assert method.title
    assert method.paper
    parts = [method.run, method.draw, method.lesson]
    if method.kind in ("several", "single"):
        assert all(parts)
        assert method.answer is None
        assert trains(Config(method=name))
    else:
        assert not any(parts)
        assert not trains(Config(method=name))
        assert bool(method.answer) == (name in ANSWERING) == (method.kind == "answer")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_files(name: str) -> None:
    golden = {"sparta": "sparta_iteration", "moaa": "moaa_sft"}.get(name, name)
    assert smoke(name).is_file()
    assert (ROOT / "docs" / "methods" / f"{name}.md").is_file()
    assert (ROOT / "tests" / "golden" / f"{golden}.txt").is_file() or name == "frozen"
    assert (ROOT / "tests" / "methods" / f"test_{name}.py").is_file()
    index = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    assert f"]({name}.md)" in index
    assert {*re.findall(r"\d{4}\.\d{5}", METHODS[name].paper)} <= {
        *re.findall(r"\d{4}\.\d{5}", index)
    }


def test_the_command_lists_every_method_in_eighty_columns(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command("methods", "--json")
    assert [row["name"] for row in json.loads(done.stdout)] == list(METHODS)
    program = (
        "import sys\nfrom phalanx.cli import main\nsys.argv = ['phalanx', 'methods']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout  # fmt: skip
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    for name, method in METHODS.items():
        for part in (f"{name} ", method.title, method.paper):
            assert part in words


# Runs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A folder for each method, made when it is first asked for."""
    root = tmp_path_factory.mktemp("runs")
    return {name: root / name for name in METHODS}


def run_of(name: str, runs: dict[str, Path]) -> Path:
    folder = runs[name]
    if not folder.exists():
        done = command("run", smoke(name), "--out", folder, "--quiet")
        assert done.returncode == 0, done.stderr
        assert f"{name}, " in done.stdout
    return folder


@pytest.mark.parametrize("name", METHODS)
def test_check_run_status_report_and_export(name: str, runs, tmp_path) -> None:
    checked = command("check", smoke(name))
    assert checked.returncode == 0, checked.stderr
    folder = run_of(name, runs)
    status = command("status", folder)
    assert status.returncode == 0, status.stderr
    assert "Finished" in status.stdout
    for ending in ("html", "md"):
        page = tmp_path / f"report.{ending}"
        done = command("report", folder, "--out", page)
        assert done.returncode == 0, done.stderr
        text = page.read_text(encoding="utf-8")
        assert name in text
        assert not re.search(r"\bNone\b|\bnan\b|num_", text.split("The configuration used")[0])
    rows = {}
    for what in ("responses", "preferences", "demonstrations", "judgments", "evaluations"):
        path = tmp_path / f"{what}.jsonl"
        whole = ["--conversational"] if what in ("preferences", "demonstrations") else []
        done = command("export", folder, what, "--out", path, *whole)
        if done.returncode:
            assert "nothing to export" in done.stderr
            assert "duels" not in done.stderr or name == "sparta"
        rows[what] = path.read_text(encoding="utf-8").count("\n") if path.exists() else 0
    assert rows["responses"] or name == "preference_file"
    learned = rows["preferences"] + rows["demonstrations"]
    assert bool(learned) == trains(load(smoke(name)))
    if name in (*ANSWERS, "frozen"):
        assert rows["evaluations"]


@pytest.mark.parametrize("name", RIVALS)
def test_the_same_command_again_asks_nobody(name: str, runs) -> None:
    folder = run_of(name, runs)
    before = (folder / "ledger.sqlite").read_bytes()
    again = command("run", smoke(name), "--out", folder, "--quiet")
    assert again.returncode == 0, again.stderr
    assert (folder / "ledger.sqlite").read_bytes() == before


# Kills -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kills(tmp_path_factory) -> dict[str, dict]:
    program = [sys.executable, "-m", "tests.kill_methods", str(tmp_path_factory.mktemp("kills"))]
    done = subprocess.run(
        [*program, "11", *(str(smoke(name)) for name in METHODS)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", METHODS)
def test_a_run_killed_at_a_random_request_ends_as_if_it_had_not_been(name: str, kills) -> None:
    done = kills[smoke(name).stem]
    assert done["signal"] == 9
    assert done["stored"] < done["requests"] or not done["requests"]
    assert done["differing"] == []


# Plans -------------------------------------------------------------------------------------------


def sent(folder: Path) -> tuple[Counter, Counter]:
    """Requests by member: of iterations, and of evaluation."""
    from phalanx.ledger import Ledger, run_ledger_path

    with Ledger(run_ledger_path(folder)) as ledger:
        rows = ledger.query("SELECT member, phase, count(*) AS n FROM responses GROUP BY 1, 2")
    made, measured = Counter(), Counter()
    for row in rows:
        kind = measured if row["phase"].startswith("evaluate") else made
        kind[row["member"]] += row["n"]
    return made, measured


@pytest.mark.parametrize("name", ["moaa", *TRAINING])
def test_the_plan_names_requests_as_the_ledger_does(name: str, runs) -> None:
    from phalanx.ledger import Ledger, run_ledger_path

    with Ledger(run_ledger_path(run_of(name, runs))) as ledger:
        rows = ledger.query("SELECT DISTINCT phase FROM responses")
    asked = {row["phase"] for row in rows if not row["phase"].startswith("evaluate")}
    plan = make_plan(load(smoke(name)))
    assert {phase for one in plan.rounds for phase in one.phases} == asked
    table = stage_tables(plan)
    said = " ".join(map(str, table[0].columns[0].cells)) if asked else table[0].plain
    assert all(phase in PHASE_WORDS or f"requests: {phase}" in said for phase in asked)


@pytest.mark.parametrize("name", RIVALS)
def test_a_run_sends_at_most_what_was_planned(name: str, runs) -> None:
    """Equal where nothing fails and nothing is alike; of the scripted pool some of it is."""
    plan = make_plan(load(smoke(name)))
    planned = Counter()
    for one in plan.rounds:
        for demand in one.demands:
            planned[demand.member] += one.count * demand.requests
    measuring = Counter()
    for demand in plan.measuring:
        measuring[demand.member] += demand.requests
    made, measured = sent(run_of(name, runs))
    assert made.total() <= planned.total() + 1e-6
    assert made.total() >= 0.6 * planned.total()
    assert all(made[member] <= planned[member] * 1.5 + 1e-6 for member in made)
    assert measured.total() <= measuring.total() + 1e-6
    assert measured.total() >= 0.6 * measuring.total()


def test_votes_on_free_answers_are_planned(tmp_path) -> None:
    """Debaters vote on them in the run, and in the plan of each task that has them."""
    rows = json.dumps(str(ROOT / "configs" / "smoke" / "questions.jsonl"))
    tasks = [f"{{name: {m}, source: {rows}, match: {m}}}" for m in ("contains", "exact")]
    tasks = f"evaluate.tasks=[{','.join(tasks)}]"
    wrote = command("run", smoke("debate"), tasks, "--out", tmp_path / "run", "--quiet")
    assert wrote.returncode == 0, wrote.stderr
    plan = make_plan(load(smoke("debate"), [tasks]))
    _, measured = sent(tmp_path / "run")
    planned = sum(demand.requests for demand in plan.measuring)
    assert 0.6 * planned <= measured.total() <= planned
    votes = [demand for demand in plan.measuring if demand.purpose == "vote"]
    assert sum(demand.requests for demand in votes) == 10 * 4 * 2  # both orders, of one task
    most = load(smoke("debate")).debate.sample.max_new_tokens
    limit = min(most, load(smoke("debate")).evaluate.max_new_tokens)
    assert all(demand.read > 3 * limit for demand in votes)  # it sees all answers but its own


@pytest.mark.parametrize(("names", "most", "noted"), [(6, 2048, True), (6, 512, False)])
def test_a_debate_beyond_the_context_is_worth_a_note(names: int, most: int, noted: bool) -> None:
    def notes(debaters: int, tokens: int) -> list[str]:
        config = pool_of(
            *(f"m{n}" for n in range(debaters)), method="debate",
            debate={"rounds": 2, "sample": {"max_new_tokens": tokens}},
        )  # fmt: skip
        evaluate = config.evaluate.model_copy(update={"max_new_tokens": tokens})
        plan = make_plan(config.model_copy(update={"evaluate": evaluate}))
        return [note for note in plan.notes if "the context has 8,192" in note]

    found = notes(names, most)
    assert bool(found) is noted
    if noted:
        tokens = int(re.search(r"max_new_tokens (\d+)", found[0])[1])
        debaters = int(re.search(r"and (\d+) debaters with 2,048", found[0])[1])
        assert not notes(names, tokens)
        assert notes(names, tokens + 20)
        assert not notes(debaters, most)
        assert notes(debaters + 1, most)


def test_what_is_learned_is_planned_where_the_first_placeholders_agree_on_nothing(
    monkeypatch,
) -> None:
    answers = []

    def unlucky(iteration, ask, config):
        result = spin.run(iteration, ask, config)
        answers.append(result.pairs[0].rejected)
        if len(answers) == 1:
            raise JudgmentError("nothing was kept")
        return result

    spin = METHODS["spin"]
    monkeypatch.setitem(METHODS, "spin", replace(spin, run=unlucky))
    config = pool_of("ada", "bob", method="spin", iterations=1, seed=986)
    (one,) = rehearsed_rounds(config, members_from(config), 40, None)
    assert one.trainings
    assert len(set(answers)) == 2


def test_a_method_that_can_learn_nothing_is_no_plan_without_training(monkeypatch) -> None:
    def nothing(iteration, ask, config):
        raise JudgmentError("nothing was kept")

    monkeypatch.setitem(METHODS, "spin", replace(METHODS["spin"], run=nothing))
    config = pool_of("ada", "bob", method="spin", iterations=1, seed=987)
    with pytest.raises(JudgmentError, match="nothing was kept"):
        rehearsed_rounds(config, members_from(config), 40, None)


def test_checks_load_nothing_heavy() -> None:
    """Meta-rewarding fits the strengths of judgments, in a rehearsal too, and so loads scipy."""
    program = (
        "import sys\nfrom phalanx.plan import check\n"
        "for path in sys.argv[1:]:\n"
        "    code, text = check(path)\n"
        "    assert code == 0, text\n"
        "    heavy = {'torch', 'transformers', 'trl', 'datasets', 'peft', 'numpy', 'scipy'}\n"
        "    assert not heavy & set(sys.modules), (path, heavy & set(sys.modules))\n"
    )
    paths = [str(smoke(name)) for name in METHODS if name != "meta_rewarding"]
    command = [sys.executable, "-c", program, *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def pool_of(*names: str, **changes) -> Config:
    members = [{"name": name} for name in names]
    data = {
        "pool": {"base": "builtin:smollm2-135m", "members": members},
        "instructions": {"source": "builtin:skills"},
        "mixture": {"aggregator": names[0]},
        "best_of_n": {"member": names[0]},
        "evaluate": {"tasks": [{"name": "s", "source": "builtin:skills", "limit": 2}]},
    }
    return Config.model_validate(data | changes)


def test_the_rehearsal_of_duels_is_what_is_known_of_them_by_counting() -> None:
    config = pool_of("ada", "bob", "cora", "dan", match={"duels": 6}, iterations=1)
    members = members_from(config)
    (rehearsed,) = rehearsed_rounds(config, members, 40, None)
    (counted,) = duel_rounds(config, members, 40)
    for purpose in ("answer", "judge"):
        one, other = (
            [d for d in found.demands if d.purpose == purpose] for found in (rehearsed, counted)
        )
        assert sum(d.requests for d in one) == sum(d.requests for d in other)
        assert {(d.written, d.usual) for d in one} == {(d.written, d.usual) for d in other}
        assert one[0].read == pytest.approx(other[0].read, rel=0.1)
    (learned,), (known,) = rehearsed.trainings, counted.trainings
    assert learned.examples == known.examples
    assert learned.most == pytest.approx(known.most, rel=0.05)


@pytest.mark.parametrize("name", TRAINING)
def test_trainings_are_planned_by_the_sections_that_are_said_to_be_learned(name: str) -> None:
    config = pool_of("ada", "bob", "cora", "dan", method=name, iterations=3)
    if name == "preference_file":
        given = load(smoke(name)).preference_file
        config = config.model_copy(update={"preference_file": given})
    assert not faults(config)
    rounds = rehearsed_rounds(config, members_from(config), 40, 500)
    assert sum(one.count for one in rounds) == 3
    sections = [config.pair_training if s == config.pair_section else getattr(config, s)
                for s in sections_learned(config)]  # fmt: skip
    for one in rounds:
        assert one.trainings
        for training in one.trainings:
            assert training.settings in sections
            assert all(count > 0 for count in training.examples.values())
            assert 0 < training.usual <= training.most
    nobody = replace_training(config)
    assert not any(one.trainings for one in rehearsed_rounds(nobody, members_from(nobody), 40, 9))


def replace_training(config: Config) -> Config:
    train = config.train.model_copy(update={"method": "none"})
    return config.model_copy(update={"train": train})


@pytest.mark.parametrize("name", [name for name in TRAINING if name != "preference_file"])
def test_plans_grow_with_the_instructions_and_not_beyond_those_there_are(name: str) -> None:
    config = pool_of("ada", "bob", "cora", method=name, iterations=1)

    def asked(available: int | None) -> float:
        found = rehearsed_rounds(config, members_from(config), 40, available)
        return sum(demand.requests for one in found for demand in one.demands)

    assert asked(20) == pytest.approx(2 * asked(10))
    assert asked(None) == asked(10**6) > asked(20)


def test_pairs_on_the_hub_are_planned_without_asking_it() -> None:
    given = {"source": "hub:org/pairs", "pairs": 30}
    config = pool_of("ada", "bob", method="preference_file", preference_file=given, iterations=2)
    (one,) = rehearsed_rounds(config, members_from(config), 40, None)
    assert one.demands == ()
    assert one.trainings[0].examples == {"ada": 30, "bob": 30}


# Sections ----------------------------------------------------------------------------------------

READ: set[str] = set()


class Watched(Config):
    """A configuration that writes down which of its sections are read."""

    def __getattribute__(self, name: str):
        if name in Config.model_fields:
            READ.add(name)
        return super().__getattribute__(name)


def read_by(name: str, config: Config) -> set[str]:
    """The sections that a method reads while it is rehearsed."""
    whole: Rehearsal = rehearsal(config.model_dump_json(), members_from(config), 40)
    watched = Watched.model_validate(whole.config.model_dump())
    method, stand = METHODS[name], Stand(whole.marks, whole.config)
    iteration = whole._start(1) if method.run else None
    READ.clear()
    if method.run and iteration:
        method.run(iteration, stand, watched)
    if method.answer:
        question = Question("q", (Message("user", "Say seven."),), str.strip)
        questions = [question]
        if name != "self_consistency":  # it refuses questions on whose answers nobody can vote
            questions.append(replace(question, id="free", read=None))
        method.answer(
            questions, whole.members, stand, watched,
            best="ada", want=Sampling(max_new_tokens=8), place=("evaluate", 0),
        )  # fmt: skip
    return READ - {"moaa"}  # a mixture without names leaves out who is a student there


@pytest.mark.parametrize("name", RIVALS)
def test_a_method_reads_no_section_that_is_said_to_have_no_use(name: str) -> None:
    config = pool_of("ada", "bob", "cora", method=name, iterations=2)
    if name == "preference_file":
        given = load(smoke(name)).preference_file
        config = config.model_copy(update={"preference_file": given})
    collectives = ("mixture", "debate", "council", "best_of_n") if name == "single_multi" else ("",)
    for collective in collectives:
        if collective:
            section = config.single_multi.model_copy(update={"collective": collective})
            config = config.model_copy(update={"single_multi": section})
        assert read_by(name, config) <= {*ALL_RUNS, *USES[name], name}
