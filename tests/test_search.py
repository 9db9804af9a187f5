"""``mixture-search`` on a pool whose best mixture is known; see :mod:`tests.search_pool`."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from phalanx.api import load_config
from phalanx.collective.designs import Design, Found, choose, front, latest
from phalanx.config import load
from phalanx.config.mixing import proposers_of
from phalanx.errors import BudgetError, ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.progress import Silent
from phalanx.report.trials import block, fragment, trials_table
from phalanx.search import dev_items, search
from phalanx.types import Failure, Response
from phalanx.workshop import Workshop
from tests.search_pool import Pool, run, write_config
from tests.tiny import make_tiny

ROOT = Path(__file__).resolve().parent.parent
BEST = Design((("ada", "bob"),), "cora")


def contents(folder: Path) -> dict:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.contents()


def count(folder: Path, table: str = "responses") -> int:
    with Ledger(run_ledger_path(folder)) as ledger:
        return ledger.count(table)


def drawn(found) -> str:
    text = io.StringIO()
    Console(width=100, file=text).print(trials_table(found))
    return text.getvalue()


@pytest.mark.parametrize("strategy", ["halving", "bayes"])
def test_the_best_design_is_found(strategy, tmp_path):
    path = write_config(tmp_path)
    found = run(path, tmp_path / "search", [f"search.strategy={strategy}", "search.trials=36"])
    assert found.stopped == ""
    choice = choose(found.trials)
    assert choice.best.design == BEST, "equally good ones cost more"
    assert (choice.best.score, choice.best.num_items) == (1.0, 18)
    alone = {t.design.aggregator: t.score for t in latest(found.trials) if t.design.alone}
    assert alone["cora"] == 0.0
    assert max(alone.values()) == 0.5
    assert [trial.design for trial in front(latest(found.trials))][-1] == BEST


def test_halving_gives_the_better_third_more_items(tmp_path):
    found = run(write_config(tmp_path), tmp_path / "search", ["search.trials=9"])
    rungs = [[t for t in found.trials if t.rung == rung] for rung in (0, 1)]
    assert [len(rung) for rung in rungs] in ([9, 3], [9, 4]), "and the best member alone"
    assert [{t.num_items for t in rung} for rung in rungs] == [{6}, {18}]
    worst = min(t.score for t in rungs[0] if t.design in {u.design for u in rungs[1]})
    left = [t for t in rungs[0] if t.design not in {u.design for u in rungs[1]}]
    best_alone = max((t for t in rungs[0] if t.design.alone), key=lambda t: t.score)
    assert all(t.score <= max(worst, best_alone.score) for t in left)
    assert any(t.design.alone for t in rungs[1])


def test_the_first_items_have_every_domain(tmp_path):
    items = dev_items(load(write_config(tmp_path), purpose="search"))
    assert len(items) == 18
    assert {item.domain for item in items[:2]} == {"sums", "products"}


def test_shared_proposals_are_sent_once_and_counted_in_full(tmp_path):
    found = run(write_config(tmp_path), tmp_path / "search", ["search.trials=30"])
    assert sum(trial.new_calls for trial in found.trials) == found.calls
    assert found.calls == count(tmp_path / "search")
    assert found.calls < sum(trial.calls for trial in found.trials) / 1.5
    for trial in found.trials:
        assert trial.calls == trial.design.requests * trial.num_items


def test_the_same_engine_and_ids_cost_the_same_alone(tmp_path):
    """What a trial says that its design costs is what a search of that design alone sends."""
    path = write_config(tmp_path)
    found = run(path, tmp_path / "many", ["search.trials=30"])
    trial = choose(found.trials).best
    engine = Pool()
    own = ["search.max_layers=1", "search.trials=4", "search.strategy=bayes"]
    mixture = "mixture={proposers: [ada, bob], aggregator: cora}"
    single = run(path, tmp_path / "one", [*own, mixture], engine)
    (same,) = (one for one in single.trials if one.design == BEST)
    assert (same.calls, same.tokens, same.score) == (trial.calls, trial.tokens, trial.score)


@settings(max_examples=8, deadline=None)
@given(calls=st.integers(1, 400), strategy=st.sampled_from(["halving", "bayes"]))
def test_the_budget_is_never_exceeded_and_more_of_it_ends_the_same(
    calls, strategy, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("budget")
    path = write_config(folder)
    engine = Pool()
    given = [f"search.strategy={strategy}", "search.trials=9"]
    found = run(path, folder / "cut", [*given, f"search.calls={calls}"], engine)
    assert len({request.id for request in engine.calls}) == len(engine.calls) == found.calls
    assert found.calls <= calls
    whole = run(path, folder / "whole", given)
    assert whole.trials[: len(found.trials)] == found.trials
    assert bool(found.stopped) == (whole.calls > calls)
    assert run(path, folder / "cut", given).trials == whole.trials
    assert contents(folder / "cut") == contents(folder / "whole")


@settings(max_examples=6, deadline=None)
@given(calls=st.integers(1, 300), tries=st.integers(2, 3))
def test_every_try_counts_and_beyond_the_budget_are_second_tries_alone(
    calls, tries, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("tries")
    path, engine = write_config(folder), Pool(tries=tries)
    given = ["search.trials=9", f"search.calls={calls}"]
    found = run(path, folder / "cut", given, engine)
    assert found.calls == len(engine.calls)
    first = [request.id for request in engine.calls[:calls]]
    assert {request.id for request in engine.calls} == set(first)
    whole = run(path, folder / "whole", given[:1], Pool(tries=tries))
    assert whole.trials[: len(found.trials)] == found.trials
    if found.stopped:
        assert whole.calls > calls


def test_a_search_that_stopped_says_so_last_and_shows_what_there_is(tmp_path):
    found = run(write_config(tmp_path), tmp_path / "search", ["search.calls=60"])
    lines = drawn(found).rstrip().splitlines()
    text = " ".join(lines)
    assert "search.calls is 60" in text[text.rindex("Stopped after") :]
    assert "raise it and run the same command" in text


def test_a_budget_of_money_stops_it_likewise(tmp_path):
    class Poor(Pool):
        def respond(self, requests):
            if len(self.calls) > 50:
                raise BudgetError("the budget is used up: 2 of 2 money spent")
            return super().respond(requests)

    path = write_config(tmp_path)
    found = run(path, tmp_path / "search", ["search.trials=9"], Poor())
    assert found.trials
    assert "2 of 2 money" in found.stopped
    whole = run(path, tmp_path / "search", ["search.trials=9"])
    assert whole.stopped == ""
    assert whole.trials[: len(found.trials)] == found.trials


@pytest.mark.parametrize("strategy", ["halving", "bayes"])
def test_kill_and_resume_give_the_same_table(strategy, tmp_path):
    extra = f", strategy: {strategy}, trials: 9"
    path = write_config(tmp_path, search=extra)
    run(path, tmp_path / "whole")
    for dies_after in (1, 12):
        command = [sys.executable, "-m", "tests.search_pool", path, tmp_path / "cut"]
        died = subprocess.run(
            [*map(str, command), str(dies_after)], cwd=ROOT, capture_output=True, timeout=240
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
    before = count(tmp_path / "cut")
    assert 0 < before < count(tmp_path / "whole")
    run(path, tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_a_finished_search_asks_nothing_more(tmp_path):
    path = write_config(tmp_path)
    first = run(path, tmp_path / "search", ["search.trials=9"])
    engine = Pool()
    again = run(path, tmp_path / "search", ["search.trials=9"], engine)
    assert engine.calls == []
    assert again == first


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    path = write_config(tmp_path)
    run(path, tmp_path / "search", ["search.trials=4"])
    with pytest.raises(LedgerError, match=r"search\.trials was 4 and is now 5"):
        run(path, tmp_path / "search", ["search.trials=5"])


def test_a_member_that_fails_leaves_its_designs_without_answers(tmp_path):
    found = run(
        write_config(tmp_path), tmp_path / "search", ["search.trials=30"], Pool(broken="ada")
    )
    alone = next(t for t in found.trials if t.design == Design((), "ada"))
    assert (alone.score, alone.note) == (None, f"{alone.num_items} unanswered (failed)")
    only = [t for t in found.trials if t.design.layers and set(t.design.layers[0]) == {"ada"}]
    assert only
    assert all("unanswered (too_few_proposals)" in t.note for t in only)
    assert "ada" not in choose(found.trials).cheapest.design.words, "bob alone is as good"


@pytest.mark.parametrize("strategy", ["halving", "bayes"])
def test_what_failed_is_asked_again_and_the_search_ends_as_if_it_never_had(strategy, tmp_path):
    path = write_config(tmp_path)
    given = [f"search.strategy={strategy}", "search.trials=9"]
    whole = run(path, tmp_path / "whole", given)
    broken = run(path, tmp_path / "cut", given, Pool(broken="ada"))
    assert broken.trials != whole.trials
    engine = Pool()
    mended = run(path, tmp_path / "cut", given, engine)
    results = [
        [(t.design, t.num_items, t.num_scored, t.score, t.note) for t in found.trials]
        for found in (mended, whole)
    ]
    assert results[0] == results[1]
    assert engine.calls
    engine = Pool()
    assert run(path, tmp_path / "cut", given, engine).trials == mended.trials
    assert engine.calls == [], "and once only"
    with Ledger(run_ledger_path(tmp_path / "cut")) as ledger:
        assert [row["number"] for row in ledger.trials()] == [t.number for t in mended.trials]


def test_trials_stay_where_the_budget_has_no_room_to_ask_again(tmp_path):
    path = write_config(tmp_path)
    broken = run(path, tmp_path / "cut", ["search.trials=9"], Pool(broken="ada"))
    again = [f"search.calls={broken.calls}", "search.trials=9"]
    assert run(path, tmp_path / "cut", again).trials == broken.trials


def test_one_failure_among_many_leaves_a_score(tmp_path):
    class Once(Pool):
        def _one(self, request):
            if "What is 5 +" in request.messages[-1].content:
                return Response(request.id, error=Failure("timeout", "not this one"))
            return super()._one(request)

    found = run(write_config(tmp_path), tmp_path / "search", ["search.trials=36"], Once())
    best = choose(found.trials).best
    assert (best.num_scored, best.score) == (17, 1.0)


def test_where_every_request_fails_nothing_is_chosen_or_written(tmp_path, monkeypatch):
    from phalanx.cli.base import main

    script = tmp_path / "broken.yaml"
    script.write_text(
        "sampling: [{when: ., fail: {kind: engine, message: down}}]", encoding="utf-8"
    )
    path = write_config(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("engine: scripted", f"engine: scripted, model: 'script:{script}'"),
        encoding="utf-8",
    )
    target = tmp_path / "mixture.yaml"
    arguments = ["mixture-search", str(path), "search.trials=4", "-q"]
    arguments += ["--out", str(tmp_path / "out"), "--to", str(target)]
    monkeypatch.setattr(sys, "argv", ["phalanx", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert not target.exists()
    found = run(path, tmp_path / "again", ["search.trials=4"], Pool(broken="ada"))
    assert choose(found.trials) is not None
    text = drawn(Found((), "accuracy", 18, 3, None, False))
    assert "ended without a result" in text


def test_a_narrow_terminal_folds_designs_and_drops_none(tmp_path):
    found = run(write_config(tmp_path), tmp_path / "search", ["search.trials=9"])
    text = io.StringIO()
    Console(width=40, file=text).print(trials_table(found))
    table, front_ = text.getvalue().split("Pareto front")[:2]
    names = ["".join(line[:8].split()) for line in table.splitlines()]
    whole = "".join(names)
    for trial in latest(found.trials):
        assert "".join(trial.design.words.split()) in whole, trial.design.words
    assert "ada " in front_.split("The score is")[0]


def test_a_script_gives_rewards_where_the_metric_is_reward(tmp_path):
    path = write_config(tmp_path, search=", metric: reward, judge: judy")
    found = run(path, tmp_path / "search", ["search.trials=30"])
    best = choose(found.trials).best
    assert (best.design, best.score) == (BEST, 2.5)


def test_a_design_that_cannot_have_enough_proposals_is_not_tried(tmp_path):
    path = write_config(tmp_path, extra="mixture: {min_proposals: 2}")
    for strategy in ("halving", "bayes"):
        found = run(path, tmp_path / strategy, [f"search.strategy={strategy}", "search.trials=20"])
        assert all(len(layer) > 1 for t in found.trials for layer in t.design.layers)
        assert choose(found.trials).best.design == BEST


def test_the_configured_mixture_is_tried_too(tmp_path):
    extra = "mixture: {per_layer: [[bob, ada], [cora]], aggregator: ada}"
    path = write_config(tmp_path, extra=extra)
    mine = Design((("bob", "ada"), ("cora",)), "ada")
    for strategy in ("halving", "bayes"):
        found = run(path, tmp_path / strategy, [f"search.strategy={strategy}", "search.trials=6"])
        assert found.trials[3].design == mine


def test_a_mixture_of_members_that_do_not_contest_is_tried_too(tmp_path):
    path = write_config(tmp_path, extra="mixture: {proposers: [ada, bob], aggregator: cora}")
    text = path.read_text(encoding="utf-8")
    quiet = "{name: cora, engine: scripted, roles: [judge]}"
    path.write_text(text.replace("{name: cora, engine: scripted}", quiet), encoding="utf-8")
    found = run(path, tmp_path / "search", ["search.trials=9"])
    assert found.trials[3].design == BEST
    assert choose(found.trials).best.design == BEST
    config = load(path, ["moaa.students=[{name: ada}]"], purpose="search")
    told = []

    class Told(Silent):
        def say(self, text):
            told.append(text)

    shop = Workshop(config, tmp_path / "other")
    shop.use("scripted", Pool())
    search(config, tmp_path / "other", workshop=shop, progress=Told())
    assert any("The configured mixture is not tried" in line for line in told)


def test_a_judge_scores_and_takes_no_part(tmp_path):
    path = write_config(tmp_path, search=", metric: judge, judge: judy", extra="judge: {low: 1}")
    found = run(path, tmp_path / "search", ["search.trials=30"])
    best = choose(found.trials).best
    assert best.design == BEST
    assert best.score == 9.0
    assert best.low == best.high == 9.0
    assert not any("judy" in trial.design.words for trial in found.trials)
    alone = next(t for t in found.trials if t.design == Design((), "cora"))
    assert alone.score == 2.0
    assert best.calls == best.design.requests * 18, "scoring is no cost of the design"
    assert sum(trial.new_calls for trial in found.trials) == count(tmp_path / "search")


def test_a_reward_model_scores_and_what_failed_has_no_score(tmp_path):
    path = write_config(tmp_path, search=", metric: reward, judge: rita")
    text = path.read_text(encoding="utf-8")
    head = tmp_path / "head"
    head.mkdir()
    (head / "config.json").write_text("{}", encoding="utf-8")
    rita = f"    - {{name: rita, engine: reward, model: {head}, roles: [judge]}}\nevaluate:"
    path.write_text(text.replace("evaluate:", rita, 1), encoding="utf-8")
    found = run(path, tmp_path / "search", ["search.trials=30"], Pool(broken="bob"))
    best = choose(found.trials).best
    assert "bob" not in best.design.words or len(best.design.layers[0]) > 1
    assert -5.0 <= best.score <= 2.5
    alone = next(t for t in found.trials if t.design == Design((), "bob"))
    assert (alone.score, alone.num_scored) == (None, 0)
    assert not alone.complete


def test_who_compares_pairs_is_refused_at_the_first_trial(tmp_path):
    path = write_config(tmp_path, search=", metric: judge, judge: judy", extra="judge: {low: 1}")
    config = load(path, purpose="search")
    pairwise = config.judge.model_copy(update={"protocol": "pairwise"})
    ranker = config.judge.model_copy(update={"protocol": "reward"})
    for judge, flags in ((pairwise, ()), (ranker, ("ranker",))):
        own = config.model_copy(update={"judge": judge})
        shop, engine = Workshop(own, tmp_path / judge.protocol), Pool(flags=flags)
        shop.use("scripted", engine)
        with pytest.raises(ConfigError, match="judy compares pairs"):
            search(own, tmp_path / judge.protocol, workshop=shop)
        assert len(engine.calls) <= 2 * 18


def test_without_dev_items_or_members_there_is_nothing_to_search(tmp_path):
    path = write_config(tmp_path)
    config = load(path, purpose="search")
    none = config.model_copy(
        update={"evaluate": config.evaluate.model_copy(update={"dev_share": 0.0})}
    )
    with pytest.raises(ConfigError, match="dev rows"):
        search(none, tmp_path / "none")
    judged = config.search.model_copy(update={"metric": "judge", "judge": "ada"})
    pool = config.pool.model_copy(update={"members": config.pool.members[:1]})
    alone = config.model_copy(update={"search": judged, "pool": pool})
    with pytest.raises(ConfigError, match="nobody is left"):
        search(alone, tmp_path / "nobody")
    assert not (tmp_path / "nobody").exists()


def test_the_block_is_a_mixture_and_the_caution_is_there(tmp_path):
    path = write_config(tmp_path, extra="mixture: {samples: 3, per_layer: [[ada]]}")
    found = run(path, tmp_path / "search", ["search.trials=30"])
    text = " ".join(drawn(found).split())
    assert "expect less elsewhere" in text
    assert "Pareto front" in text
    assert "The search is complete" in text
    assert "aggregator: cora" in block(BEST)
    target = tmp_path / "mixture.yaml"
    target.write_text(fragment(found), encoding="utf-8")
    chosen = load(path, [f"mixture={target}"], purpose="search")
    assert proposers_of(chosen) == BEST.layers
    assert (chosen.mixture.aggregator, chosen.mixture.samples) == ("cora", 1)


def test_prices_of_endpoints_make_the_cost_in_money(tmp_path, monkeypatch):
    path = write_config(tmp_path)
    text = path.read_text(encoding="utf-8").replace(
        "{name: cora, engine: scripted}",
        "{name: cora, engine: openai, model: cora, endpoint: far}",
    )
    path.write_text(
        text + "endpoints: [{name: far, url: 'http://127.0.0.1:9/v1', price_in: 2, price_out: 4}]",
        encoding="utf-8",
    )
    config = load(path, ["search.trials=12"], purpose="search")
    shop = Workshop(config, tmp_path / "search")
    engine = Pool()
    for name in ("scripted", "openai"):
        shop.use(name, engine)
    found = search(config, tmp_path / "search", workshop=shop)
    alone = next(t for t in found.trials if t.design == Design((), "cora"))
    words = [len(i.instruction.split()) for i in dev_items(config)[: alone.num_items]]
    assert alone.money == pytest.approx((2 * sum(words) + 4 * 4 * len(words)) / 1e6)
    assert all(t.money == 0 for t in found.trials if "cora" not in t.design.words)
    assert "money" in drawn(found)


def test_the_command(tmp_path):
    from typer.testing import CliRunner

    from phalanx.cli import app

    rows = "".join(
        f'{{"instruction": "Say seven, for the {n}th time.", "answer": "seven"}}\n'
        for n in range(12)
    )
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(rows, encoding="utf-8")
    path = tmp_path / "search.yaml"
    path.write_text(
        f"""
pool: {{members: [{{name: ada, engine: scripted}}, {{name: bob, engine: scripted}}]}}
evaluate:
  dev_share: 0.9
  tasks: [{{name: seven, source: "{tasks}", match: contains}}]
search: {{trials: 6, items: 12}}
""",
        encoding="utf-8",
    )
    target = tmp_path / "mixture.yaml"
    arguments = ["mixture-search", str(path), "--out", str(tmp_path / "out"), "--to", str(target)]
    done = CliRunner().invoke(app, [*arguments, "-q"])
    assert done.exit_code == 0, done.output
    assert "The search is complete" in done.output
    assert load(path, [f"mixture={target}"], purpose="mix").mixture.aggregator in ("ada", "bob")
    short = CliRunner().invoke(app, [*arguments[:2], "search.calls=7", "-q", "--out",
                                     str(tmp_path / "short")])  # fmt: skip
    assert short.exit_code == 0, short.output
    assert "search.calls is 7" in " ".join(short.output.split())


@pytest.mark.slow
def test_a_search_on_real_models(tmp_path):
    """Tiny random ones: they know nothing, but are asked, share proposals and are counted."""
    bases = [
        make_tiny(tmp_path / name, seed=seed, context=2048) for seed, name in enumerate(("a", "b"))
    ]
    path = tmp_path / "search.yaml"
    path.write_text(
        f"""
pool:
  members:
    - {{name: ada, model: {bases[0]}}}
    - {{name: bob, model: {bases[1]}}}
mixture: {{propose: {{max_new_tokens: 4}}}}
evaluate: {{tasks: [{{name: skills, source: "builtin:skills", limit: 2}}], max_new_tokens: 4}}
search: {{trials: 5, items: 4, max_layers: 2, max_samples: 2}}
resources: {{threads: 1}}
""",
        encoding="utf-8",
    )
    config = load(path, purpose="search")
    found = search(config, tmp_path / "search")
    assert found.stopped == ""
    assert len(latest(found.trials)) == 5
    assert all(trial.tokens > trial.calls for trial in found.trials)
    assert found.calls == sum(trial.new_calls for trial in found.trials)
    assert not any("unanswered (failed)" in trial.note for trial in found.trials)


def test_faults_in_the_files_of_a_search_are_found_while_it_is_loaded(tmp_path):
    tasks = tmp_path / "broken.jsonl"
    tasks.write_text('{"instruction": "Say seven."}\n', encoding="utf-8")
    tasks_of = [f'evaluate.tasks=[{{name: broken, source: "{tasks}", match: contains}}]']
    with pytest.raises(ConfigError, match=r"broken\.jsonl"):
        load_config(write_config(tmp_path), tasks_of, purpose="search")
