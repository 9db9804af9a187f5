"""The report of a run by any other method: sums that add up, and words for its figures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from phalanx.report import html, markdown
from phalanx.report.facts import gather
from phalanx.report.records import RunFacts
from phalanx.report.rivals_views import figure_words, rival_notes, rival_sections
from phalanx.report.terminal import status, summary
from tests.report.test_renderers import printed
from tests.scripts import command, write_pool, write_rows

RULES = """
sampling:
  - {when: ., member: ada, reply: ['7', 'The answer is 7.']}
  - {when: ., member: bob, reply: ['8']}
  - {when: ., reply: ['7', '8', '9']}
"""


def run(folder, more: str) -> RunFacts:
    path = write_rows(folder / "rows.jsonl", [
        {"instruction": f"What is {n} + 0?", "answer": "7"} for n in range(8)
    ])  # fmt: skip
    config = write_pool(folder, ("ada", "bob", "cora"), RULES, more.format(rows=path))
    done = command("run", config, "--out", folder / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    from phalanx.ledger import Ledger, run_ledger_path

    with Ledger(run_ledger_path(folder / "run")) as ledger:
        return gather(ledger)


GRPO = """
method: consensus_grpo
iterations: 2
instructions: {{source: "{rows}"}}
consensus_grpo: {{instructions: 4, samples: 3}}
train: {{method: none}}
"""
DEBATE = """
method: debate
evaluate: {{tasks: [{{name: sums, source: "{rows}", match: number}}], dev_share: 0.5}}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> RunFacts:
    return run(tmp_path_factory.mktemp("grpo"), GRPO)


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> RunFacts:
    return run(tmp_path_factory.mktemp("debate"), DEBATE)


def test_what_was_made_adds_up(trained: RunFacts) -> None:
    made = trained.rival.made
    assert [(one.iteration, one.source) for one in made] == [
        (number, name) for number in (1, 2) for name in ("ada", "bob", "cora")
    ]
    assert all(one.what == "rated" and one.rows == 12 for one in made)
    assert all(one.rows == one.kept + sum(one.dropped.values()) for one in made)
    account = trained.accounting
    assert sum(one.kept for one in made) == account.demonstrations_kept
    assert sum(one.rows for one in made) == account.num_demonstrations == 72


def test_figures_are_the_metrics_that_stand_nowhere_else(trained: RunFacts) -> None:
    figures = trained.rival.figures
    assert figures["num_samples"] == {1: 36, 2: 36}
    assert not [key for key in figures if key.startswith(("num_dropped", "num_demonstrations"))]
    tables = {view.title: view for section in rival_sections(trained, trained.rival)
              for view in section.tables}  # fmt: skip
    whole = tables["The method's figures by iteration"]
    assert ("responses sampled", "36", "36") in whole.rows
    names = {"ada", "bob", "cora"}
    assert not [row for row in whole.rows if names & set(re.split(r"[: ]+", row[0]))]
    assert tables["The same of single members"].detail


def test_an_answer_together_is_compared_with_the_best_member(answered: RunFacts) -> None:
    rival = answered.rival
    assert [one.name for one in rival.levels] == ["ada", "bob", "cora", "debate"]
    assert rival.best == "ada"
    levels = {one.name: one.test for one in rival.levels}
    overall = next(change for change in rival.over_best if not change.domain)
    assert overall.before == levels["ada"]
    assert overall.difference == pytest.approx(levels["debate"] - levels["ada"])
    assert overall.n == rival.levels[0].num_test
    assert rival.figures["asked"] == {0: 8}


def test_the_mixture_of_evaluation_is_shown_and_tests_of_domains_are_adjusted(tmp_path) -> None:
    more = """
mixture: {{proposers: [ada, bob], aggregator: ada}}
method: debate
evaluate:
  tasks: [{{name: sums, source: "{rows}", match: number, samples: 3, temperature: 1}}]
  dev_share: 0.5
  mixture: true
"""
    facts = run(tmp_path, more)
    rival = facts.rival
    assert [(one.name, one.together) for one in rival.levels][-2:] == [
        ("debate", True), ("mixture", True),
    ]  # fmt: skip
    section = rival_sections(facts, rival)[0]
    level, domain = section.tables
    assert "together (mixture)" in [row[0] for row in level.rows]
    assert f"{rival.levels[0].num_test} test items; {rival.levels[0].num_dev} others" in level.note
    assert rival.levels[0].num_dev + rival.levels[0].num_test == 8
    assert "flipped signs" in domain.note
    assert domain.headers[-2:] == ("p", "Holm")
    tested = [change for change in rival.over_best if change.domain]
    assert all(change.adjusted is not None for change in tested)


def test_demonstrations_of_judging_are_labels(trained: RunFacts) -> None:
    assert "No label was used" in rival_notes(trained, trained.rival)[-1]
    for method, section in (
        ("self_rewarding", {"judge_seed": "seed.jsonl"}), ("spin", {}), ("preference_file", {}),
    ):  # fmt: skip
        facts = replace(trained, method=method, config={**trained.config, method: section})
        assert "No label was used" not in rival_notes(facts, trained.rival)[-1]


def test_without_dev_items_nobody_is_called_the_best(tmp_path) -> None:
    facts = run(tmp_path, DEBATE.replace("0.5", "0"))
    assert facts.rival.best == ""
    assert facts.rival.over_best == ()
    assert "nobody is called the best" in printed(summary(facts))


def test_pages_say_what_the_run_was(trained: RunFacts, answered: RunFacts) -> None:
    for facts in (trained, answered):
        for text in (html.render(facts), markdown.render(facts), printed(summary(facts))):
            assert facts.method in text
            assert "num_" not in text.split("The configuration used")[0]
            assert "duel" not in text.split("The configuration used")[0]
    assert "Rows to learn from" in printed(status(trained))
    assert "Together over ada" in printed(status(answered))
    assert 'id="training"' in html.render(trained)
    assert 'id="training"' not in html.render(answered)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("num_samples", "responses sampled"),
        ("labels.no_majority", "labels: no majority"),
        ("mean_length_chosen", "mean length of the chosen, characters"),
        ("scores.unreadable", "scores: unreadable"),
    ],
)
def test_figures_have_words(key: str, words: str) -> None:
    assert figure_words(key) == words


def test_a_run_that_only_measures_says_where_it_is(answered: RunFacts) -> None:
    going = replace(answered.progress, finished=None, phase="evaluate debate 2", asked=24, owed=8)
    text = printed(status(replace(answered, progress=going)))
    assert "Not finished: the measurement, debating (evaluate debate 2), 16 of 24" in text
    assert "iteration 0" not in text + html.render(replace(answered, progress=going))


COUNCIL = """
method: council
evaluate: {{tasks: [{{name: sums, source: "{rows}", match: number}}]}}
"""
REJECTION = """
method: rejection_sampling
iterations: 1
instructions: {{source: "{rows}"}}
rejection_sampling: {{instructions: 4, samples: 3}}
judge: {{protocol: rubric, max_unreadable: 1.0}}
train: {{method: none}}
"""


def test_votes_that_cannot_be_read_are_said_first(tmp_path, answered: RunFacts) -> None:
    facts = run(tmp_path, COUNCIL)
    said = "Warning: 15 of 15 votes or judgments of council could not be read."
    assert printed(summary(facts), width=300).splitlines()[1].startswith(said)
    assert said in markdown.render(facts)
    assert "could not be read" not in printed(summary(answered))


def test_what_scores_count_is_said(tmp_path) -> None:
    facts = run(tmp_path, REJECTION)
    asked = sum(one.asked for one in facts.accounting.phases if one.phase == "judge")
    assert (
        facts.rival.figures["scores.asked"][1] > asked
    )  # a "7" of ada and of cora is one request to bob
    text = " ".join(printed(summary(facts)).split())
    assert "a request that several learners share is sent once" in text
