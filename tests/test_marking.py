"""Judged answers and several samples, as evaluations record them; also in whole runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.collective.mixture import mixture_from
from phalanx.config import load, rules
from phalanx.config.schema import Config
from phalanx.errors import ConfigError
from phalanx.evaluate import ask_members, evaluate, evaluate_mixture, load_tasks
from phalanx.identity import canonical_json
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import ITEM_TEXTS
from phalanx.loop import align
from phalanx.marking import Answered, record_answers
from phalanx.pool import members_from
from phalanx.statistics import pass_at_k
from phalanx.types import Failure, Likelihood, Options, Request, Response, Sampling
from tests.scripts import write_rows
from tests.search_pool import Pool, write_config

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = {"Why sleep?": "to rest", "Why eat?": "hunger"}


class Answers:
    """Members answer by ``says(name, question, seed)``; judges grade by ``grades(judge, text)``."""

    def __init__(self, says: Callable, grades: Callable | None = None) -> None:
        self.says, self.grades = says, grades
        self.asked: list[Request] = []
        self.phases: list[str] = []

    def __call__(self, phase: str, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        self.phases.append(phase)
        return [self.one(request) for request in requests]

    def one(self, request: Request) -> Response:
        told = request.messages[-1].content
        if isinstance(request.want, Options):
            text = re.search(r"<<<response \w+>>>\n(.*?)\n<<<end", told, re.DOTALL)[1]
            chance = self.grades(request.member.name, text)
            if chance is None:
                return Response(request.id, error=Failure("timeout", "late"))
            return Response(request.id, probabilities={"yes": chance, "no": 1 - chance})
        assert isinstance(request.want, Sampling)
        text = self.says(request.member.name, told.split("\n")[0], request)
        if text is None:
            return Response(request.id, error=Failure("refused", "no"))
        return Response(request.id, text=text, finish_reason="stop")

    @property
    def gradings(self) -> list[Request]:
        return [request for request in self.asked if request.purpose == "grade"]


@pytest.fixture
def judged(tmp_path: Path) -> Config:
    """Two items of com2 and one of one's own; cora and judy judge."""
    rows = [{"question": question, "answer": gold} for question, gold in GOLDEN.items()]
    com2 = write_rows(tmp_path / "com2.jsonl", rows)
    own = write_rows(tmp_path / "own.jsonl", [{"instruction": "Say hello.", "answer": "hello"}])
    tasks = [
        {"name": "com2", "source": str(com2), "kind": "com2"},
        {"name": "own", "source": str(own), "match": "judged"},
    ]
    path = write_config(tmp_path, items=2)
    wanted = [f"evaluate.tasks={json.dumps(tasks)}", "evaluate.judges=[cora, judy]"]
    return load(path, wanted, purpose="eval")


def measured(config: Config, folder: Path, ask: Answers, names=("ada",), **more):
    """(rows of evaluations, rows of games) of the members named."""
    members = members_from(config)
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        order = canonical_json([member.name for member in members])
        ledger.record_start({"pool_order": order}, members, ())
        mine = [member for member in members if member.name in names]
        evaluate(mine, load_tasks(config), ask, ledger, config, iteration=0, **more)
        rows = ledger.query("SELECT * FROM evaluations ORDER BY member, task, item")
        return rows, ledger.query("SELECT * FROM games ORDER BY member, task, item, judge, game")


def test_the_majority_of_the_judges_decides(judged: Config, tmp_path: Path) -> None:
    ask = Answers(
        lambda name, question, _: "<think>hm</think> " + GOLDEN.get(question, "bye"),
        lambda judge, text: float(text in GOLDEN.values()),
    )
    rows, games = measured(judged, tmp_path / "run", ask)
    assert {(row["task"], row["correct"], row["readable"], row["score"]) for row in rows} == {
        ("com2", 1, 1, 1.0), ("own", 0, 1, 0.0),
    }  # fmt: skip
    assert ask.phases == ["evaluate", "evaluate grade"]
    assert all("hm" not in request.messages[0].content for request in ask.gradings)
    assert len(games) == 3 * 2
    known = {request.id: request for request in ask.asked}
    for game in games:
        assert known[game["request"]].member.name == game["judge"]
        assert known[game["response"]].purpose == "evaluate"
        assert (game["label"], game["value"]) == (
            ("yes", 1.0) if game["task"] == "com2" else ("no", 0.0)
        )
    assert {game["length"] for game in games if game["task"] == "own"} == {len("bye")}
    assert {game["rival_length"] for game in games if game["task"] == "own"} == {len("hello")}
    assert {row["answer"] for row in rows if row["task"] == "own"} == {"bye"}


def test_no_judge_is_asked_of_an_answer_of_its_own(judged: Config, tmp_path: Path) -> None:
    ask = Answers(lambda name, *_: f"I am {name}", lambda judge, text: 1.0)
    rows, games = measured(judged, tmp_path / "run", ask, names=("ada", "cora"))
    assert all(row["correct"] for row in rows)
    who = {(game["member"], game["judge"]) for game in games}
    assert who == {("ada", "cora"), ("ada", "judy"), ("cora", "judy")}
    alone = judged.model_copy(
        update={"evaluate": judged.evaluate.model_copy(update={"judges": ["cora"]})}
    )
    rows, games = measured(alone, tmp_path / "alone", ask, names=("cora",))
    assert {(row["correct"], row["readable"], row["reason"]) for row in rows} == {
        (0, 0, "judges: nobody but who wrote it")
    }
    assert games == []


def test_what_cannot_be_judged_is_unreadable_with_the_reason(
    judged: Config, tmp_path: Path
) -> None:
    drawn = Answers(lambda *_: "x", lambda judge, text: float(judge == "cora"))
    rows, games = measured(judged, tmp_path / "drawn", drawn)
    found = {(row["correct"], row["readable"], row["score"], row["reason"]) for row in rows}
    assert found == {(0, 0, 0.0, "judges: 1 yes, 1 no")}
    assert sorted({game["value"] for game in games}) == [0.0, 1.0]

    late = Answers(lambda *_: "x", lambda judge, text: None)
    rows, games = measured(judged, tmp_path / "late", late)
    assert {row["reason"] for row in rows} == {"judges: cora: timeout, judy: timeout"}
    assert {(game["value"], game["label"], game["reason"]) for game in games} == {
        (None, "", "timeout")
    }

    one = Answers(lambda *_: "x", lambda judge, text: 0.9 if judge == "judy" else None)
    rows, _ = measured(judged, tmp_path / "one", one)
    assert all(row["correct"] and row["readable"] for row in rows)

    silent = Answers(lambda name, question, _: None if "eat" in question else "<think>so")
    rows, games = measured(judged, tmp_path / "silent", silent)
    assert sorted(row["reason"] for row in rows) == ["empty", "empty", "refused"]
    assert not any(row["readable"] for row in rows)
    assert games == silent.gradings == []


def test_the_same_answer_is_judged_once(judged: Config, tmp_path: Path) -> None:
    ask = Answers(lambda *_: "x", lambda judge, text: 1.0)
    _, games = measured(judged, tmp_path / "run", ask, names=("ada", "bob"))
    assert len(games) == 2 * 3 * 2
    assert len({request.id for request in ask.gradings}) == 3 * 2


def test_judges_are_those_of_the_start(judged: Config, tmp_path: Path) -> None:
    from phalanx.types import TrainResult

    members = members_from(judged)
    ask = Answers(lambda *_: "x", lambda judge, text: 1.0)
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as ledger:
        order = canonical_json([member.name for member in members])
        ledger.record_start({"pool_order": order}, members, ())
        newer = replace(next(m for m in members if m.name == "cora"), version=1, adapter="new")
        ledger.record_training(1, TrainResult(newer, 1, {}, (), {}, 1.0))
        assert {m.key for m in ledger.members(1)} >= {"cora@1"}
        evaluate(members[:1], load_tasks(judged), ask, ledger, judged, iteration=1)
    assert {request.member.key for request in ask.gradings} == {"cora@0", "judy@0"}


def test_judges_that_cannot_judge_are_refused(judged: Config, tmp_path: Path) -> None:
    ask = Answers(lambda *_: "x")
    nobody = judged.evaluate.model_copy(update={"judges": []})
    with pytest.raises(ConfigError, match=r"evaluate.judges names nobody"):
        measured(judged.model_copy(update={"evaluate": nobody}), tmp_path / "a", ask)
    with Ledger(run_ledger_path(tmp_path / "b"), writable=True) as ledger:
        members = members_from(judged)
        ledger.record_start({"pool_order": "[]"}, members, ())
        answered = ask_members([("ada@0", members[0])], load_tasks(judged), ask, judged)
        scorer = replace(members[1], engine="reward")
        with pytest.raises(ConfigError, match="bob only gives rewards"):
            record_answers(answered, ask, ledger, judged, iteration=0, judges=[scorer])


def test_rows_have_the_name_given_and_the_writer_does_not_judge(
    judged: Config, tmp_path: Path
) -> None:
    ask = Answers(lambda *_: "x", lambda judge, text: 1.0)
    members = {member.name: member for member in members_from(judged)}
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as ledger:
        ledger.record_start({"pool_order": "[]"}, list(members.values()), ())
        items = load_tasks(judged)
        answered = ask_members([("cora@2", members["cora"])], items, ask, judged)
        mine = [members["cora"], members["bob"]]
        record_answers(answered, ask, ledger, judged, iteration=0, judges=mine)
        rows = ledger.query("SELECT DISTINCT member, correct FROM evaluations")
        games = ledger.query("SELECT DISTINCT member, judge FROM games")
        texts = ledger.query(f"{ITEM_TEXTS} SELECT * FROM items ORDER BY item")
    assert rows == [{"member": "cora@2", "correct": 1}]
    assert texts == [
        {"task": item.task, "item": item.id, "question": item.instruction, "gold": item.answer}
        for item in sorted(items, key=lambda item: item.id)
    ]
    assert games == [{"member": "cora@2", "judge": "bob"}]


def test_a_mixture_is_judged_by_all_but_its_aggregator(judged: Config, tmp_path: Path) -> None:
    mixing = judged.mixture.model_copy(update={"proposers": ["ada", "bob"], "aggregator": "cora"})
    config = judged.model_copy(update={"mixture": mixing})
    ask = Answers(lambda *_: "x", lambda judge, text: 1.0)
    members = members_from(config)
    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as ledger:
        ledger.record_start({"pool_order": "[]"}, members, ())
        mixture = mixture_from(config, members)
        evaluate_mixture(mixture, load_tasks(config), ask, ledger, config, iteration=0)
        games = ledger.query("SELECT DISTINCT member, judge FROM games")
    assert games == [{"member": "mixture", "judge": "judy"}]


# Samples -----------------------------------------------------------------------------------------


def sampled(tmp_path: Path, samples: int, **more) -> Config:
    path = write_config(tmp_path, items=4)
    task = {"name": "sums", "source": str(tmp_path / "tasks.jsonl"), "match": "number", **more}
    task |= {"samples": samples, "temperature": 0.8}
    return load(path, [f"evaluate.tasks=[{json.dumps(task)}]"], purpose="eval")


def drawn(name: str, question: str, request: Request) -> str:
    """Right in about half of the samples, by the seed of each."""
    a, sign, b = re.search(r"(\d+) ([+*]) (\d+)", question).groups()
    right = int(a) + int(b) if sign == "+" else int(a) * int(b)
    return f"It is {right if request.seed % 2 else right + 1}."


def test_a_score_is_the_share_of_samples_that_are_right(tmp_path: Path) -> None:
    ask = Answers(drawn)
    rows, _ = measured(sampled(tmp_path, 9), tmp_path / "run", ask)
    assert len(ask.asked) == len({request.id for request in ask.asked}) == 4 * 9
    assert len({request.seed for request in ask.asked}) == 4 * 9
    assert {request.want.temperature for request in ask.asked} == {0.8}
    by_id = {request.id: request for request in ask.asked}
    of_item: dict[str, list[Request]] = {}
    for request in ask.asked:
        of_item.setdefault(request.messages[-1].content, []).append(request)
    for row in rows:
        mine = of_item[by_id[row["response"]].messages[-1].content]
        right = sum(request.seed % 2 for request in mine)
        assert row["score"] == right / 9
        assert round(row["score"] * 9) == right
        first = mine[0]
        assert row["response"] == first.id
        assert row["correct"] == first.seed % 2
        assert pass_at_k(9, right, 1) == pytest.approx(row["score"])
    assert 0 < sum(row["score"] for row in rows) < 4


def test_a_failed_sample_is_wrong_and_told(tmp_path: Path) -> None:
    calls = iter(range(100))
    ask = Answers(lambda *_: None if next(calls) % 3 == 2 else "It is 5.")
    rows, _ = measured(sampled(tmp_path, 3), tmp_path / "run", ask)
    right = [row for row in rows if row["correct"]]
    assert right
    for row in right:
        assert row["score"] == pytest.approx(2 / 3)
        assert (row["readable"], row["reason"]) == (1, "sample 3: refused")


def test_a_sample_without_an_answer_has_its_own_reason(tmp_path: Path) -> None:
    config = sampled(tmp_path, samples=3)
    item = load_tasks(config)[0]
    said = Response("r", text=item.answer, finish_reason="stop")
    missing = ("", "failed: 1", "no vote: 2")
    one = Answered("all", item, (said, None, None), "ada", missing)
    two = replace(one, name="last", responses=(None, said, said), missing=("empty: 0", "", ""))
    with Ledger(run_ledger_path(tmp_path / "l"), writable=True) as ledger:
        record_answers([one, two], Answers(drawn), ledger, config, iteration=0)
        rows = {row["member"]: row for row in ledger.query("SELECT * FROM evaluations")}
    assert rows["all"]["reason"] == "sample 2: failed: 1"
    assert rows["last"]["reason"] == "empty: 0"


def test_samples_of_judged_items_are_judged_one_by_one(judged: Config, tmp_path: Path) -> None:
    tasks = [
        task.model_copy(update={"samples": 2, "temperature": 0.5}) for task in judged.evaluate.tasks
    ]
    config = judged.model_copy(
        update={"evaluate": judged.evaluate.model_copy(update={"tasks": tasks})}
    )
    ask = Answers(
        lambda name, question, request: "yes" if request.seed % 2 else "no",
        lambda judge, text: float(text == "yes"),
    )
    rows, games = measured(config, tmp_path / "run", ask)
    assert {game["game"] for game in games} == {"gold", "gold 2"}
    assert len(games) == 3 * 2 * 2
    for row in rows:
        mine = [g["value"] for g in games if (g["task"], g["item"]) == (row["task"], row["item"])]
        assert row["score"] == sum(mine) / len(mine)


def test_samples_of_code_are_run_one_by_one(tmp_path: Path) -> None:
    problem = {
        "task_id": "own/0",
        "prompt": 'def twice(x):\n    """Twice the number."""\n',
        "entry_point": "twice",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    rows_file = write_rows(tmp_path / "code.jsonl", [problem])
    task = {"name": "code", "source": str(rows_file), "kind": "humaneval", "samples": 4}
    task["temperature"] = 0.8
    path = write_config(tmp_path, items=2)
    config = load(path, [f"evaluate.tasks=[{json.dumps(task)}]"], purpose="eval")
    calls = iter(("x + x", "x * x * x", "x(", "2 * x"))
    ask = Answers(lambda *_: f"```python\ndef twice(x):\n    return {next(calls)}\n```")
    (row,), _ = measured(config, tmp_path / "run", ask)
    # Those that are wrong could be read: they are no sample without an answer.
    assert (row["score"], row["correct"], row["readable"], row["reason"]) == (0.5, 1, 1, "")
    assert pass_at_k(4, round(row["score"] * 4), 2) == pytest.approx(1 - 1 / 6)


def test_with_samples_partial_credit_gives_way_to_whole_items(tmp_path: Path) -> None:
    row = {
        "source": ["Ann"], "relation": ["knows"], "target": ["blank 1"],
        "options": {"blank 1": ["Bob", "Cy"], "blank 2": ["tea", "jam"]},
        "golds": {"blank 1": "B", "blank 2": "A"},
    }  # fmt: skip
    rows_file = write_rows(tmp_path / "k.jsonl", [row])
    path = write_config(tmp_path, items=2)
    for samples, share in ((1, 0.5), (2, 0.0)):
        task = {"name": "k", "source": str(rows_file), "kind": "kcross", "samples": samples}
        task["temperature"] = 0.5
        config = load(path, [f"evaluate.tasks=[{json.dumps(task)}]"], purpose="eval")
        ask = Answers(lambda *_: "blank 1: B, blank 2: B")
        rows, _ = measured(config, tmp_path / str(samples), ask)
        assert [row["score"] for row in rows] == [share]
        assert [row["correct"] for row in rows] == [0]


def test_greedy_requests_are_what_they_were(tmp_path: Path) -> None:
    """Old ledgers go on: the ids of greedy answers have no sample in them."""
    from phalanx.identity import content_id

    config = load(write_config(tmp_path, items=2), purpose="eval")
    ask = Answers(drawn)
    measured(config, tmp_path / "run", ask)
    want = Sampling(0, 1, 0, config.evaluate.max_new_tokens)
    (item, _), member = load_tasks(config), members_from(config)[0]
    messages = member.messages(item.instruction)
    key = content_id("evaluate", member.key, item.task, item.id, messages, want)
    assert (ask.asked[0].id, ask.asked[0].seed) == (key, 0)


def test_a_mixture_answers_as_often_as_members(tmp_path: Path) -> None:
    config = sampled(tmp_path, 3)
    mixing = config.mixture.model_copy(update={"proposers": ["ada", "bob"], "aggregator": "cora"})
    config = config.model_copy(update={"mixture": mixing})
    engine, members = Pool(), members_from(config)
    asked: list[Request] = []

    def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
        asked.extend(requests)
        return engine.respond(requests)

    with Ledger(run_ledger_path(tmp_path / "run"), writable=True) as ledger:
        ledger.record_start({"pool_order": "[]"}, members, ())
        mixture = mixture_from(config, members)
        evaluate_mixture(mixture, load_tasks(config), ask, ledger, config, iteration=0)
        rows = ledger.query("SELECT * FROM evaluations")
    last = [request for request in asked if request.purpose == "aggregate"]
    assert len({request.id for request in last}) == 4 * 3
    assert {request.want.temperature for request in last} == {0.8}
    assert [row["score"] for row in rows] == [1.0] * 4


def test_likelihoods_are_recorded_as_shares(tmp_path: Path) -> None:
    marked = {"mc2_targets": {"choices": ["a", "bb", "ccc"], "labels": [1, 0, 0]}}
    rows_file = write_rows(tmp_path / "t.jsonl", [{"question": "q?", **marked}])
    task = {"name": "t", "source": str(rows_file), "kind": "truthfulqa_mc2"}
    path = write_config(tmp_path, items=2)
    config = load(path, [f"evaluate.tasks=[{json.dumps(task)}]"], purpose="eval")

    def ask(phase: str, requests: Sequence[Request]) -> list[Response]:
        assert all(isinstance(request.want, Likelihood) for request in requests)
        return [Response(r.id, logprob_sum=0.0 if r.want.completion == "a" else -1.0)
                for r in requests]  # fmt: skip

    rows, _ = measured(config, tmp_path / "run", ask)
    assert rows[0]["score"] == pytest.approx(1 / (1 + 2 / 2.718281828459045))
    assert f"{rows[0]['score']:.6f}" == rows[0]["answer"]
    assert rows[0]["correct"] == 1


# Runs --------------------------------------------------------------------------------------------


def test_a_run_has_judged_tasks(tmp_path: Path) -> None:
    rows = [{"instruction": f"What is {n}?", "answer": "a number"} for n in range(4)]
    tasks = write_rows(tmp_path / "tasks.jsonl", rows)
    overrides = [
        f"evaluate.tasks=[{{name: own, source: '{tasks}', match: judged}}]",
        "evaluate.judges=[ada, bob]",
    ]
    config = load(ROOT / "configs/smoke/rubric.yaml", overrides)
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        before = ledger.contents()
        found = ledger.query(
            "SELECT iteration, member, judge, count(*) AS n FROM games GROUP BY 1, 2, 3"
        )
        graded = ledger.query("SELECT DISTINCT version FROM responses WHERE purpose = 'grade'")
        members = [member.name for member in ledger.members()]
    assert not [row for row in found if row["member"] == row["judge"]]
    judges = {name: {"ada", "bob"} - {name} for name in members}
    assert {(row["iteration"], row["member"], row["judge"]) for row in found} == {
        (number, name, judge)
        for number in range(config.iterations + 1)
        for name in members
        for judge in judges[name]
    }
    assert {row["n"] for row in found} == {4}
    assert graded == [{"version": 0}]
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.contents() == before


@pytest.mark.parametrize(
    ("task", "more", "said"),
    [
        ({"match": "judged"}, {}, "evaluate.judges: names nobody, and t: judges say"),
        ({"match": "judged"}, {"judges": ["adda", "bob"]}, "no member is named adda"),
        ({"match": "judged"}, {"judges": ["ada", "ada"]}, "ada is named 2 times"),
        ({"match": "judged"}, {"judges": ["ada"]}, "ada: answers that nobody else judges (t)"),
        ({"match": "judged"}, {"judges": ["scorer", "bob"]}, "scorer only gives rewards"),
        ({"kind": "com2"}, {}, "names nobody"),
        ({"kind": "mmlu", "match": "judged"}, {}, "judged beside kind mmlu"),
        ({"samples": 4}, {}, "4 samples at temperature 0 would be the same text"),
        ({"kind": "truthfulqa_mc1", "samples": 4, "temperature": 1.0}, {}, "nothing is written"),
        ({"kind": "truthfulqa_mc2", "temperature": 1.0}, {}, "nothing is written"),
        ({"kind": "arena_hard"}, {}, "arena_hard compares answers with each other, which a run"),
        ({"kind": "open"}, {}, "give it to phalanx eval"),
        ({"source": "lm-eval:arc_easy"}, {}, "phalanx eval --task lm-eval:arc_easy"),
    ],
)
def test_rules(tmp_path: Path, task: dict, more: dict, said: str) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"instruction": "a", "answer": "b"}])
    members = [{"name": name, "engine": "scripted"} for name in ("ada", "bob", "cora")]
    members.append({"name": "scorer", "engine": "reward", "model": "org/rm", "roles": ["judge"]})
    tasks = [{"name": "t", "source": str(rows), **task}]
    config = Config.model_validate(
        {"pool": {"members": members}, "evaluate": {"tasks": tasks, **more},
         "instructions": {"source": "builtin:skills"}}
    )  # fmt: skip
    found = [fault for fault in rules.faults(config) if fault.startswith("evaluate")]
    assert [fault for fault in found if said in fault], found


def test_what_is_for_eval_passes_there_alone(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"instruction": "a", "answer": "b"}])
    members = [{"name": name, "engine": "scripted"} for name in ("ada", "bob")]
    tasks = [{"name": "a", "source": str(rows), "kind": "alpaca_eval", "temperature": 0.7},
             {"name": "b", "source": str(rows), "match": "judged"}]  # fmt: skip
    config = Config.model_validate(
        {"pool": {"members": members}, "evaluate": {"tasks": tasks, "judges": ["ada"]}}
    )
    assert rules.faults(config, purpose="eval") == []
    alone = config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"judges": []})}
    )
    assert "evaluate.judges: names nobody, and b" in rules.faults(alone, purpose="eval")[0]
    assert len([f for f in rules.faults(config) if f.startswith("evaluate")]) == 2
    found = rules.faults(config, purpose="search")
    assert [f for f in found if "b: judged, and a search by accuracy asks no judges" in f]
    fine = {"tasks": tasks[1:], "judges": ["ada", "bob"]}
    config = Config.model_validate({"pool": {"members": members}, "evaluate": fine})
    assert not [f for f in rules.faults(config) if f.startswith("evaluate")]
