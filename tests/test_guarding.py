"""Guards on whole runs of scripted members: each rule provoked, resumed, and let pass."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from phalanx.collective.alarms import FACT, from_json, in_words
from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import BudgetError, GuardError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.methods import sparta
from phalanx.plan import make_plan
from phalanx.progress import Silent
from phalanx.sources import instructions_of
from phalanx.workshop import Workshop
from tests.scripts import command

ROOT = Path(__file__).parent.parent

OWN = "".join(f"  - {{when: ., member: {name}, reply: {name} says so}}\n" for name in "abcd")
"""No two of them say the same, so that every duel is judged."""
MUTE = (
    """
sampling:
  - {when: '"score"', member: a, reply: no opinion}
  - {when: '"score"', member: b, reply: no opinion}
  - {when: '"score"', reply: ['{"score": 8}', '{"score": 3}']}
"""
    + OWN
)
FLIPPING = (
    """
sampling:
  - {when: '\\[\\[A\\]\\]', member: d, reply: ['[[A]]', '[[B]]']}
  - {when: '\\[\\[A\\]\\]', reply: '[[A]]'}
"""
    + OWN
)


def pool_of(folder: Path, rules: str, names: str = "abcd") -> dict:
    path = folder / "rules.yaml"
    path.write_text(rules, encoding="utf-8")
    members = [{"name": n, "engine": "scripted", "model": f"script:{path}"} for n in names]
    return {"members": members}


def duels(folder: Path, rules: str, **more) -> Config:
    """A run of duels without training, from a file that ``phalanx run`` could read."""
    settings = {
        "seed": 4,
        "iterations": 2,
        "pool": pool_of(folder, rules),
        "instructions.source": "builtin:skills",
        "match.duels": 12,
        "judge.protocol": "rubric",
        "train.method": "none",
        "resources.batch_size": 4,
    }
    return load("preset:sparta-small", {**settings, **more})


class Heard(Silent):
    """What a run says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @property
    def warned(self) -> list[str]:
        return [text for text in self.said if text.startswith("Warning: guard")]


def contents(folder: Path) -> dict:
    """The ledger, without the configurations, which tell limits apart."""
    with Ledger(run_ledger_path(folder)) as ledger:
        found = ledger.contents()
    found["run"] = [row for row in found["run"] if row["key"] != "config"]
    return found


def count(folder: Path, table: str, where: str = "1") -> int:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.count(table, where)


def sent(folder: Path) -> int:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.num_sent()


def fired(folder: Path) -> list[tuple[str, int, str, str]]:
    with Ledger(run_ledger_path(folder)) as ledger:
        rows = from_json(ledger.get(FACT))
    return [(*one.place, did) for one, did in rows]


def stopped(config: Config, folder: Path, match: str = "") -> GuardError:
    with pytest.raises(GuardError, match=match) as caught:
        align(config, folder)
    return caught.value


# Unreadable judgments ----------------------------------------------------------------------------


def test_judging_ends_once_the_limit_is_surely_exceeded(tmp_path):
    """Half of the judges are mute: a limit of a fifth is exceeded long before the last reply."""
    strict = duels(tmp_path, MUTE, **{"judge.max_unreadable": 0.2})
    error = stopped(strict, tmp_path / "run", "guard max_unreadable stopped the run in iteration 1")
    assert isinstance(error, JudgmentError)
    asked = 12 * 2 * 2
    heard = count(tmp_path / "run", "responses", "purpose = 'judge' AND status = 'done'")
    assert 0.2 * asked < heard < asked, "neither too early nor too late"
    assert f"of {asked} replies of judges could not be read (limit 20%)" in str(error)
    assert count(tmp_path / "run", "judgments") == 0
    before = sent(tmp_path / "run")
    again = stopped(strict, tmp_path / "run", "guard max_unreadable stopped")
    assert sent(tmp_path / "run") == before, "the same command asks nobody"
    assert str(again) == str(error)
    key, value = error.fired.setting.split("=")
    assert f"phalanx run CONFIG {key}={value}; the responses are kept" in str(error)
    lenient = duels(tmp_path, MUTE, **{"judge.max_unreadable": 0.2, key: float(value)})
    align(lenient, tmp_path / "run")
    align(lenient, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_the_advised_limit_of_the_whole_iteration_lets_it_pass(tmp_path):
    """One batch has all replies, so that the exact share is known when it fires."""
    more = {"guard.max_unreadable": 0.1, "resources.batch_size": 500}
    error = stopped(duels(tmp_path, MUTE, **more), tmp_path / "run", "judgments could not be read")
    key, value = error.fired.setting.split("=")
    assert f"or go on here: phalanx run CONFIG {key}={value}; the responses are kept" in str(error)
    more |= {key: float(value), "iterations": 1}
    align(duels(tmp_path, MUTE, **more), tmp_path / "run")
    assert count(tmp_path / "run", "judgments") == 24


def test_a_warning_is_said_once_an_iteration_and_a_pause_is_one(tmp_path):
    more = {"judge.max_unreadable": 0.2}
    warn = duels(tmp_path, MUTE, **more, **{"guard.action.max_unreadable": "warn"})
    told = Heard()
    align(warn, tmp_path / "warn", progress=told)
    assert len(told.warned) == 2
    assert "iteration 1: " in told.warned[0]
    assert "could not be read (0." in told.warned[0]
    again = Heard()
    align(warn, tmp_path / "warn", progress=again)
    assert again.warned == []
    with Ledger(run_ledger_path(tmp_path / "warn")) as ledger:
        assert len(ledger.query("SELECT 1 FROM events WHERE kind = 'guard'")) == 2

    pause = duels(tmp_path, MUTE, **more, **{"guard.action.max_unreadable": "pause"})
    for number in (1, 2):
        error = stopped(pause, tmp_path / "pause", f"paused the run in iteration {number}")
        assert (error.exit_code, error.paused) == (6, True)
        assert "the same command goes on" in str(error)
    align(pause, tmp_path / "pause")
    assert contents(tmp_path / "pause") == contents(tmp_path / "warn")


# What an iteration has ---------------------------------------------------------------------------


def test_flips_stop_the_run_with_its_judgments_kept(tmp_path):
    """Three of four judges name what stands first, whatever it says."""
    more = {"judge.protocol": "pairwise"}
    strict = duels(tmp_path, FLIPPING, **more, **{"guard.max_flips": 0.5})
    error = stopped(strict, tmp_path / "run", "guard max_flips stopped the run in iteration 1: ")
    assert error.exit_code == 5
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        flipped = ledger.count("judgments", "flipped")
        assert ledger.count("judgments") == 24
        assert ledger.state(1) is not None
    assert f"{flipped} of 24 readable judgments" in str(error)
    before = sent(tmp_path / "run")
    other = {"guard.max_flips": 0.5, "judge.max_unreadable": 0.7, "budget.seconds": 900}
    stopped(duels(tmp_path, FLIPPING, **more, **other), tmp_path / "run", "max_flips stopped")
    assert sent(tmp_path / "run") == before
    shown = " ".join(command("status", tmp_path / "run").stdout.split())
    assert "Guards: max_unreadable 0.7 (stop), max_flips 0.5 (stop)" in shown, "those of now"
    assert "budget.seconds 900 (stop)" in shown
    free = duels(tmp_path, FLIPPING, **more, **{"guard.max_flips": 1.0})
    align(free, tmp_path / "run")
    align(free, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    align(strict, tmp_path / "run")  # what was let pass is past, and the run is finished
    assert fired(tmp_path / "run") == [("max_flips", 1, "judgments", "stop")]


def test_the_command_says_how_to_go_on_in_its_last_line(tmp_path):
    pool_of(tmp_path, FLIPPING)
    members = "".join(
        f"    - {{name: {n}, engine: scripted, model: 'script:{tmp_path}/rules.yaml'}}\n"
        for n in "abcd"
    )
    path = tmp_path / "config.yaml"
    path.write_text(
        f"seed: 4\niterations: 2\npool:\n  members:\n{members}"
        "instructions: {source: 'builtin:skills'}\nmatch: {duels: 12}\n"
        "judge: {protocol: pairwise}\ntrain: {method: none}\n"
        "guard: {max_flips: 0.5, hacking: 0.1, action: {max_flips: pause}}\n",
        encoding="utf-8",
    )
    run = tmp_path / "run"
    plan = command("check", path)
    assert "Guards: max_unreadable 0.5 (stop), max_flips 0.5 (pause), hacking" in plan.stdout
    assert "guard.hacking: this guard can never fire: nothing is measured" in " ".join(
        plan.stdout.split()
    )
    done = command("run", path, "--out", run, "-q")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 6
    assert last.startswith("phalanx: guard max_flips paused the run in iteration 1: ")
    assert "the same command goes on" in last
    assert f"or go on here: phalanx run {path} --out {run} guard.max_flips=0." in last
    status = command("status", run).stdout
    assert "Guards: max_unreadable 0.5 (stop), max_flips 0.5 (pause)" in " ".join(status.split())
    text = "guard max_flips paused the run in iteration 1"
    assert " ".join(status.split()).count(text) == 1, "what ended the run is said once"
    assert "Continue with the command that started it" in status
    ended = command("watch", run, "-q")
    assert ended.returncode == 6
    setting = last[last.index("guard.max_flips=") :]
    same = command("run", path, "guard.action.max_flips=stop", "--out", run, "--json")
    said = json.loads(same.stdout.splitlines()[-1])
    assert (same.returncode, said["exit_code"]) == (5, 5)
    copied = said["reason"].partition("go on here: phalanx ")[2]
    more = command(*shlex.split(copied), "-q")
    assert more.returncode == 0, more.stderr
    assert "Warning: guard max_flips paused the run in iteration 1" in " ".join(
        command("report", run).stdout.split()
    )
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Guards: max_unreadable 0.5 (stop)" in page
    assert "guard max_flips paused the run in iteration 1" in page
    with Ledger(run_ledger_path(run)) as ledger:
        assert f'"max_flips":{setting.split("=")[1]}' in ledger.get("config").replace(" ", "")


def test_a_guard_that_gets_no_numbers_is_told(tmp_path):
    """Few judgments and responses an iteration, no dev items, nobody trained, no endpoint; and two
    limits for one thing."""
    more = {
        "judge.protocol": "pairwise",
        "match.duels": 3,
        "judge.max_unreadable": 0.3,
        "guard.max_unreadable": 0.4,
        "guard.max_flips": 0.1,
        "guard.length_drift": 1.2,
        "guard.hacking": 0.1,
        "guard.max_kl": 0.5,
        "budget.requests": 100,
    }
    config = duels(tmp_path, FLIPPING, **more)
    told = [note for note in make_plan(config).notes if note.startswith(("guard", "budget", "jud"))]
    assert [note.split(": ")[0] for note in told] == [
        "budget.requests", "judge.max_unreadable", "guard.hacking", "guard.max_kl",
        "guard.max_flips", "guard.length_drift",
    ]  # fmt: skip
    assert "about 6 judgments an iteration, and it wants at least 20" in told[4]
    align(config, tmp_path / "run")
    assert fired(tmp_path / "run") == [], "three duels are noise"
    more |= {"match.duels": 40, "judge.max_unreadable": 0.5, "guard.max_flips": 1.0}
    enough = make_plan(duels(tmp_path, FLIPPING, **more)).notes
    assert not [note for note in enough if "hardly ever" in note or "counts for nothing" in note]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("frozen", "none"),
        ("spin", "none"),
        ("sppo", "max_unreadable 0.5 (stop)"),
        ("consensus_grpo", "finite_loss (stop)"),
    ],
)
def test_guards_that_are_on_by_default_are_named_where_they_can_fire(method, words):
    assert in_words(load(ROOT / "configs" / "smoke" / f"{method}.yaml")) == words


def test_responses_that_grow_from_one_iteration_to_the_next(tmp_path):
    """By script: the second iteration's instructions get answers ten times as long."""
    more = {"match.duels": 40, "guard.length_drift": 2.0}
    read = instructions_of(duels(tmp_path, MUTE)).instructions
    first, second = (
        {one.text for one in sparta.draw(duels(tmp_path, MUTE, **more), read, number)}
        for number in (1, 2)
    )
    new = "|".join(map(re.escape, sorted(second - first))).replace("'", "''")
    rules = (
        "sampling:\n  - {when: '\"score\"', reply: ['{\"score\": 8}', '{\"score\": 3}']}\n"
        f"  - {{when: '^({new})', reply: ['{'many words ' * 10}', '{'and some more ' * 10}']}}\n"
        "  - {when: ., reply: [one two three, four five six]}\n"
    )
    config = duels(tmp_path, rules, **more)
    error = stopped(config, tmp_path / "run", "guard length_drift stopped the run in iteration 2")
    assert "became longer" in str(error)
    assert error.fired.value > 2
    assert count(tmp_path / "run", "states") == 2
    free = duels(tmp_path, rules, **{**more, "guard.length_drift": 50.0})
    align(free, tmp_path / "run")
    align(free, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "words", "rule"),
    [
        ("moaa", ["moaa.dpo_instructions=12", "guard.max_flips=0"], "max_flips"),
        ("sppo", ["guard.max_flips=0"], "max_flips"),
        ("rejection_sampling", ["guard.max_unreadable=0.1"], "max_unreadable"),
        ("self_rewarding", ["guard.max_unreadable=0"], "max_unreadable"),
        ("meta_rewarding", ["meta_rewarding.instructions=4", "guard.length_drift=1.0001"],
         "length_drift"),
    ],
)  # fmt: skip
def test_other_methods_where_the_numbers_exist(method, words, rule, tmp_path):
    path = ROOT / "configs" / "smoke" / f"{method}.yaml"
    error = stopped(load(path, words), tmp_path / "run", f"guard {rule} stopped the run")
    assert error.fired.rule == rule
    warn = load(path, [*words, f"guard.action.{rule}=warn"])
    align(warn, tmp_path / "run")
    align(warn, tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert {did for *_, did in fired(tmp_path / "run")} == {"stop", "warn"}
    if method == "moaa":  # a scorer's judgments, of one response each, are none in two orders
        with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
            moa = ledger.count("judgments", "iteration = 2 AND protocol = 'moa'")
            assert moa < ledger.count("judgments", "iteration = 2")
        assert f"of {moa} readable judgments" in str(error)


# Seconds, and processes that die -----------------------------------------------------------------


class Slow(ScriptedEngine):
    """Takes a while for every batch, as models do."""

    def respond(self, requests):
        time.sleep(0.02)
        return super().respond(requests)


def test_check_tells_a_budget_that_will_not_do():
    def told(seconds: float) -> list[str]:
        notes = make_plan(load("preset:demo", {"budget.seconds": seconds})).notes
        return [note for note in notes if note.startswith("budget.seconds")]

    assert "and is stopped after 30.0 s, to go on when" in told(30)[0]
    assert told(1e6) == []


def slowly(config: Config, folder: Path) -> None:
    with Workshop(config, folder) as shop:
        shop.use("scripted", Slow(batch_size=4))
        align(config, folder, workshop=shop)


def test_seconds_of_all_starts_together(tmp_path):
    """The clock ends the run between batches; the next start has what is left, which is nothing."""
    run = tmp_path / "run"
    calm = "sampling:\n  - {when: '\"score\"', reply: ['{\"score\": 8}', '{\"score\": 3}']}\n" + OWN
    short = duels(tmp_path, calm, **{"budget.seconds": 0.3})
    with pytest.raises(BudgetError, match=r"of 0.3 seconds, all starts together") as caught:
        slowly(short, run)
    assert caught.value.exit_code == 3
    kept = count(run, "responses")
    assert 0 < kept < 12 * 2 * 3
    with pytest.raises(BudgetError, match="budget is used up"):
        slowly(short, run)
    assert count(run, "responses") == kept
    key, value = str(caught.value).split()[-1].split("=")
    assert key == "budget.seconds"
    assert float(value) > 0.3
    free = duels(tmp_path, calm, **{"budget.seconds": 900.0})
    slowly(free, run)
    align(free, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")
    with Ledger(run_ledger_path(run)) as ledger:
        assert float(ledger.get("seconds")) > 0.3


def test_a_guarded_run_that_was_killed_stops_and_goes_on_like_any_other(tmp_path):
    more = {"judge.protocol": "pairwise"}
    strict = duels(tmp_path, FLIPPING, **more, **{"guard.max_flips": 0.5})
    run = tmp_path / "run"
    child = os.fork()
    if not child:
        try:
            slowly(strict, run)
        finally:
            os._exit(1)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if (run / "ledger.sqlite").exists() and count(run, "responses", "phase = 'judge'") > 4:
                break
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert count(run, "states") == 0
    assert count(run, "responses", "phase = 'judge'") > 4
    stopped(strict, run, "guard max_flips stopped the run in iteration 1")
    assert count(run, "judgments") == 24
    free = duels(tmp_path, FLIPPING, **more)
    align(free, run)
    align(free, tmp_path / "whole")
    assert contents(run) == contents(tmp_path / "whole")
