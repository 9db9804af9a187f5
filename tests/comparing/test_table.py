"""The arithmetic of a comparison, by hand and against scipy, on ledgers as runs leave them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from phalanx.comparing.budget import Budget
from phalanx.comparing.reading import measurable, read_arm, unfinished
from phalanx.comparing.rendering import comparison_sections, page, verdict, write
from phalanx.comparing.spec import Arm
from phalanx.comparing.table import adjusted, difference, tabulate
from phalanx.config import Config
from phalanx.errors import LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.ledger.rows import together_key
from phalanx.report.scores import macro
from tests.comparing.measured import DEV, ITEMS, arm_of

START = {"ada": ("10", "11111100"), "bob": ("00", "00000011")}
DOMAIN = {("skills", item): domain for item, domain in {**ITEMS, **DEV}.items()}


def aligned(ada: tuple[str, str], bob: tuple[str, str]) -> dict[str, tuple[str, ...]]:
    return {"ada": (*START["ada"], *ada), "bob": (*START["bob"], *bob)}


MARKS = aligned(("11", "11100011"), ("01", "11111111"))


def test_the_best_member_is_chosen_on_dev_and_reported_on_test(tmp_path):
    """After alignment bob is better on test items, which must not choose him."""
    run = read_arm(arm_of(tmp_path, "sparta", MARKS))
    assert (run.last, run.best(0), run.best(1), run.headline_of) == (1, "ada", "ada", "ada")
    of = (run.of_best(0), run.headline, run.of_pool(0), run.of_pool(1))
    assert [macro(scores, run.domain) for scores in of] == pytest.approx([0.5, 0.75, 0.5, 0.875])


def test_a_vote_goes_to_the_answer_of_most_and_is_shared_by_equals(tmp_path):
    run = read_arm(arm_of(tmp_path, "two", MARKS))
    assert set(run.of_vote(0).values()) == {0.5}
    three = {
        "ada": ("10", "11111100"),
        "bob": ("10", "11100000"),
        "cora": ("10", "00011110"),
    }
    run = read_arm(arm_of(tmp_path, "three", three, method="frozen"))
    assert list(run.of_vote(0).values()) == [1] * 6 + [1 / 3, 0]
    silent = dict.fromkeys(three, ("10", "????????"))
    run = read_arm(arm_of(tmp_path, "silent", silent, method="frozen"))
    assert set(run.of_vote(0).values()) == {0.0}


def test_who_answers_together_stands_for_an_arm(tmp_path):
    together = {"debate": ("11", "11111111")}
    arm = arm_of(tmp_path, "debate", START, method="debate", together=together)
    run = read_arm(arm)
    assert (run.headline_of, run.members) == ("debate", ("ada", "bob"))
    assert set(run.headline.values()) == {1.0}
    frozen = arm_of(tmp_path, "frozen", START, method="frozen")
    found = tabulate([frozen, arm])
    row = found.rows[1]
    assert (row.kind, row.mean, row.vote, row.whose) == ("answer", None, None, ("debate",))
    assert row.differences["frozen"].value == pytest.approx(0.5)
    broken = arm_of(tmp_path, "broken", START, method="debate")
    with pytest.raises(LedgerError, match="no answers of debate"):
        read_arm(broken)


def test_a_difference_is_that_of_the_domains_means():
    def scores(marks: str) -> dict:
        return {("skills", item): float(m) for item, m in zip(ITEMS, marks, strict=True)}

    found = difference({1: (DOMAIN, scores("11111100"), scores("11100011"))})
    assert found.value == pytest.approx(0.25)
    assert (found.num_items, found.differing) == (8, 5)
    assert (found.seeds, found.p_seeds) == (None, None)
    one = difference({1: (DOMAIN, {("skills", "a0"): 0.0}, {("skills", "a0"): 1.0})})
    assert (one.value, one.items, one.p_items, one.finds) == (1.0, None, None, None)


marks = st.lists(st.sampled_from([0.0, 1.0]), min_size=8, max_size=8)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(st.lists(st.tuples(marks, marks), min_size=2, max_size=5))
def test_over_seeds_it_is_a_t_test_of_the_seeds_means(rows):
    items = [("skills", item) for item in ITEMS]
    triples = {
        seed: (DOMAIN, dict(zip(items, one, strict=True)), dict(zip(items, two, strict=True)))
        for seed, (one, two) in enumerate(rows)
    }
    found = difference(triples)
    means = [macro(after, DOMAIN) - macro(before, DOMAIN) for _, before, after in triples.values()]
    assert list(found.by_seed.values()) == pytest.approx(means)
    assert found.value == pytest.approx(sum(means) / len(means))
    if max(means) - min(means) > 1e-9:
        expected = stats.ttest_1samp(means, 0)
        assert found.p_seeds == pytest.approx(float(expected.pvalue))
        assert found.seeds == pytest.approx(_cut(expected.confidence_interval(0.95)), abs=1e-9)
    elif abs(means[0]) > 1e-9:
        assert found.p_seeds is None  # however alike seeds are, two of them are no proof
    of_items = {
        i: sum(after[i] - before[i] for _, before, after in triples.values()) / len(triples)
        for i in items
    }
    one, two = ([x for i, x in of_items.items() if DOMAIN[i] == d] for d in ("addition", "kinds"))
    if max(one) - min(one) + max(two) - min(two) > 1e-9:
        # The mean of two domains, each a sample by itself, is Welch's difference with a sign.
        expected = stats.ttest_ind(one, [-x for x in two], equal_var=False)
        least = min(1, 2 * 0.5 ** sum(abs(x) > 1e-9 for x in of_items.values()))
        assert found.p_items == pytest.approx(max(float(expected.pvalue), least), abs=1e-9)
        ends = [end / 2 for end in expected.confidence_interval(0.95)]
        assert found.items == pytest.approx(_cut(ends), abs=1e-9)
    swapped = difference({s: (domain, two, one) for s, (domain, one, two) in triples.items()})
    assert swapped.value == pytest.approx(-found.value)
    assert swapped.p_items == pytest.approx(found.p_items)
    assert found.alike == all(before == after for _, before, after in triples.values())


def _cut(interval) -> list[float]:
    low, high = interval
    return [max(-1, low), min(1, high)]


def test_domains_are_given_so_that_what_lies_between_them_is_no_spread():
    """Every item of one domain gained and none of the other: no other question would change it."""
    items = [("t", str(n)) for n in range(35)]
    domain = {item: "few" if n < 5 else "many" for n, item in enumerate(items)}
    before = dict.fromkeys(items, 0.0)
    found = difference({1: (domain, before, {i: float(domain[i] == "few") for i in items})})
    assert (found.value, found.error, found.items) == (0.5, 0.0, None)
    assert found.p_items == 2 * 0.5**5  # the signs alone speak
    found = difference({1: (domain, before, dict.fromkeys(items, 1.0))})
    assert found.p_items == 2 * 0.5**35
    alone = {**dict.fromkeys(items, "many"), items[0]: "one"}
    assert difference({1: (alone, before, dict.fromkeys(items, 1.0))}).p_items is None


def test_few_items_say_no_more_than_the_exact_test_and_nothing_impossible():
    items = [("t", str(n)) for n in range(34)]
    domain, before = dict.fromkeys(items, "d"), dict.fromkeys(items, 0.0)
    five = difference({1: (domain, before, {i: float(n < 5) for n, i in enumerate(items)})})
    assert five.p_items == stats.binomtest(5, 5).pvalue == 0.0625
    assert verdict(adjusted([five])[0]) == "unclear"
    assert adjusted([five])[0].finds is None
    six = difference({1: (domain, before, {i: float(n < 6) for n, i in enumerate(items)})})
    assert verdict(adjusted([six])[0]) == "better*"
    (first, *_) = items
    lost = difference({s: (domain, dict.fromkeys(items[:3], 1.0), {first: 0.0, items[1]: 0.0,
                       items[2]: float(s == 1)}) for s in (1, 2)})  # fmt: skip
    assert lost.value == pytest.approx(-5 / 6)
    assert (lost.items.low, lost.seeds.low, lost.seeds.high) == (-1, -1, 1)


def test_seeds_with_other_items_weigh_the_same():
    def scores(names: str, mark: float) -> dict:
        return {("t", name): mark for name in names}

    domain = {("t", name): "d" for name in "abcdef"}
    found = difference(
        {
            1: (domain, scores("abcd", 0.0), {**scores("abc", 1.0), ("t", "d"): 0.0}),
            2: (domain, scores("ef", 0.0), scores("ef", 0.0)),
        }
    )
    assert (found.value, found.by_seed, found.num_items) == (0.375, {1: 0.75, 2: 0.0}, 6)
    assert sum(found.items) / 2 == pytest.approx(0.375)


def test_p_is_adjusted_over_all_that_are_compared_with_the_same():
    def one(changes: list[float]) -> object:
        items = [("t", str(n)) for n in range(len(changes))]
        domain = dict.fromkeys(items, "d")
        before = dict.fromkeys(items, 0.0)
        return difference({1: (domain, before, dict(zip(items, changes, strict=True)))})

    clear, vague, none = (one([1.0] * 9 + [0.0]), one([1.0] * 7 + [-1.0] * 4), one([0.0] * 4))
    found = adjusted([clear, vague, none])
    assert found[0].adjusted_items == pytest.approx(3 * clear.p_items)
    assert found[1].adjusted_items == pytest.approx(2 * vague.p_items)
    assert found[2].adjusted_items == 1
    assert [verdict(x) for x in found] == ["better*", "unclear", "same"]
    assert found[1].finds == pytest.approx((2.394 + 0.842) * vague.error, abs=1e-3)
    assert adjusted([]) == []


def arms_of(folder):
    """Three ways, two seeds; one arm is not finished, and one has not begun."""
    arms = []
    for seed in (1, 2):
        arms.append(arm_of(folder, "frozen", START, seed, "frozen"))
        arms.append(arm_of(folder, "sparta", MARKS, seed))
        arms.append(arm_of(folder, "same", aligned(START["ada"], START["bob"]), seed))
    stopped = arms[-1]
    with Ledger(run_ledger_path(stopped.folder), writable=True) as ledger:
        with ledger.transaction():
            ledger._db.execute("DELETE FROM run WHERE key = 'finished'")
        ledger.event("stopped", "the endpoint is gone")
    return [*arms, Arm("late", 2, folder / "nowhere", arms[0].config)]


def test_the_whole_table(tmp_path):
    arms = arms_of(tmp_path)
    found = tabulate(arms, ("frozen", "sparta"), Budget(responses=4))
    assert [row.name for row in found.rows] == ["frozen", "sparta", "same"]
    assert (found.num_dev, found.num_test, found.fixed_items) == (2, 8, True)
    frozen, sparta, same = found.rows
    assert (frozen.level, sparta.level) == pytest.approx((0.5, 0.75))
    assert sparta.differences["frozen"].by_seed == pytest.approx({1: 0.25, 2: 0.25})
    assert "sparta" not in sparta.differences
    assert frozen.differences["sparta"].value == pytest.approx(-0.25)
    assert (same.seeds, verdict(same.differences["frozen"])) == ((1,), "same")
    assert (sparta.mean.start, sparta.mean.end) == pytest.approx((0.5, 0.875))
    assert frozen.mean.difference.alike
    assert sparta.domains == {"addition": 0.5, "kinds": 1.0}
    assert [(one.name, one.seed) for one in found.missing] == [("same", 2), ("late", 2)]
    assert unfinished(arms[-1]) == "not started"
    assert "the endpoint is gone" in unfinished(arms[-2])
    assert (found.share(frozen), found.share(sparta)) == (None, 0)


def test_it_is_written_and_shown_whole(tmp_path):
    found = tabulate(arms_of(tmp_path / "runs"), ("frozen", "sparta"), Budget(responses=4))
    text, data = write(found, tmp_path, "three ways", ["notes of the caller"])
    shown = text.read_text(encoding="utf-8")
    for words in (
        "# three ways", "notes of the caller", "Left out: same, seed 2: not finished",
        "the endpoint is gone", "Left out: late, seed 2: not started",
        "Against the best initial member", "Against sparta",
        "sparta‡ used 0 % (seed 1), 0 % (seed 2) of the budget", "| sparta‡ |",
        "the same in all seeds", "fewer than three seeds", "By domain", "By seed",
    ):  # fmt: skip
        assert words in shown, words
    plain = json.loads(data.read_text(encoding="utf-8"))
    assert plain["rows"][1]["differences"]["frozen"]["value"] == pytest.approx(0.25)
    assert plain["missing"][1] == {"name": "late", "seed": 2, "why": "not started"}
    nothing = tabulate([Arm("late", 2, tmp_path / "nowhere", Config())])
    (only,) = comparison_sections(nothing)
    assert only.lines == ("No run is finished.", "Left out: late, seed 2: not started.")


def fill(arm: Arm, *statements: str) -> Arm:
    with Ledger(run_ledger_path(arm.folder), writable=True) as ledger, ledger.transaction():
        for statement in statements:
            ledger._db.execute(statement)
    return arm


def test_runs_in_which_nobody_learned_say_so_on_top(tmp_path):
    frozen = arm_of(tmp_path, "frozen", START, method="frozen")
    sparta, other = arm_of(tmp_path, "sparta", MARKS), arm_of(tmp_path, "other", MARKS)
    lines = comparison_sections(tabulate([frozen, sparta, other]))[0].lines
    assert lines[0] == "No member was trained in any run: this says nothing about learning."
    fill(sparta, "INSERT INTO training_steps VALUES (1, 'ada', 1, '{}')")
    lines = comparison_sections(tabulate([frozen, sparta, other]))[0].lines
    assert lines[0] == (
        "No member was trained in the runs of other, which say nothing about learning."
    )
    assert "trained" not in comparison_sections(tabulate([frozen, sparta]))[0].lines[0]
    together = {"debate": ("11", "11111111")}
    debate = arm_of(tmp_path, "debate", START, method="debate", together=together)
    assert tabulate([frozen, debate]).untrained == ()


def test_what_makes_a_run_say_little_is_said(tmp_path):
    pairs = [f"INSERT INTO pairs (id, iteration, dropped) VALUES ('{n}', 1, 'tie')" for n in "ab"]
    none = fill(arm_of(tmp_path, "none", MARKS), *pairs)
    one = fill(
        arm_of(tmp_path, "one", MARKS), *pairs, "UPDATE pairs SET dropped = '' WHERE id = 'a'"
    )
    together = {"council": ("11", "11111111")}
    council = arm_of(tmp_path, "council", START, 2, "council", together=together)
    with Ledger(run_ledger_path(council.folder), writable=True) as ledger:
        ledger.put(together_key(0, "council"), json.dumps({"votes": 1, "unreadable": 19}))
    found = tabulate([none, one, council])
    assert {row.name: list(row.warnings) for row in found.rows} == {
        "none": [1], "one": [], "council": [2]
    }  # fmt: skip
    lines = "\n".join(comparison_sections(found)[0].lines)
    assert "none, seed 1: none of 2 pairs and demonstrations was kept, so nothing could" in lines
    assert "council, seed 2: 19 of 20 votes or judgments of council could not" in lines


def test_a_terminal_of_80_columns_cuts_nothing(tmp_path):
    from rich.console import Console

    found = tabulate(arms_of(tmp_path), ("frozen",))
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(page(found, "three ways"))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    assert any(line.split()[:2] == ["sparta", "+25.0"] for line in lines)


def test_an_arm_that_cannot_be_read_takes_no_other_away(tmp_path):
    frozen = arm_of(tmp_path, "frozen", START, method="frozen")
    sparta, torn = arm_of(tmp_path, "sparta", MARKS), arm_of(tmp_path, "torn", MARKS)
    run_ledger_path(torn.folder).write_bytes(b"torn" * 1000)
    bare = arm_of(tmp_path, "bare", START, method="debate")
    found = tabulate([frozen, sparta, torn, bare])
    assert [row.name for row in found.rows] == ["frozen", "sparta"]
    assert [one.name for one in found.missing] == ["torn", "bare"]
    assert "no answers of debate" in found.missing[1].why


def test_a_seed_that_one_side_lacks_takes_no_other_seed_s_difference_away(tmp_path):
    arms = [
        arm_of(tmp_path, "frozen", START, 1, "frozen"),
        *(arm_of(tmp_path, "sparta", MARKS, seed) for seed in (1, 2)),
    ]
    sections = comparison_sections(tabulate(arms))
    (seeds,) = [t for section in sections for t in section.tables if t.title == "By seed"]
    assert [row[-1] for row in seeds.rows] == ["–", "+25.0", "–"]


def test_an_arm_that_is_to_go_on_is_not_finished(tmp_path):
    arm = arm_of(tmp_path, "sparta", MARKS)
    assert unfinished(arm) == ""
    longer = replace(arm, config=arm.config.model_copy(update={"iterations": 2}))
    assert unfinished(longer) == "not finished, 0 of 2 iterations recorded"
    assert unfinished(replace(arm, folder=tmp_path)) == "not started"


def test_arms_that_were_measured_on_other_items_are_refused(tmp_path):
    first = arm_of(tmp_path, "frozen", START, method="frozen")
    other = arm_of(tmp_path, "sparta", MARKS)
    with Ledger(run_ledger_path(other.folder), writable=True) as ledger, ledger.transaction():
        ledger._db.execute("DELETE FROM evaluations WHERE item = 'a0'")
    with pytest.raises(LedgerError, match="measured on other items than frozen"):
        tabulate([first, other])


def test_what_could_not_be_compared_is_said_before_anything_runs():
    assert measurable(Config()) == [
        "evaluate.tasks: names no task; a comparison needs items with answers"
    ]
    tasks = [{"name": "skills", "source": "builtin:skills", "limit": 4}]
    for share, split in ((0.0, "dev"), (0.999999, "test")):
        config = Config.model_validate({"evaluate": {"tasks": tasks, "dev_share": share}})
        (fault,) = measurable(config)
        assert f"leaves no {split} items" in fault
    assert measurable(Config.model_validate({"evaluate": {"tasks": tasks}})) == []
