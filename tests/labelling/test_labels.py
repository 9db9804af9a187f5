"""What people say is a row, the last of it counts, and a sample is the same each time."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest

from phalanx.config import load
from phalanx.errors import ConfigError, LedgerError
from phalanx.export import rows_of
from phalanx.labelling import Wanted, start
from phalanx.labelling.sample import chosen
from phalanx.ledger import Ledger
from phalanx.ledger.labels import Bout, Label, labels_of, majority, record_label
from phalanx.loop import align
from phalanx.report.facts import gather
from phalanx.report.people import COUNCIL, MIN_KAPPA, disputed_duels, people
from phalanx.types import Member, Message


@pytest.fixture
def ledger(path):
    with Ledger(path, writable=True) as opened:
        yield opened


def test_the_last_label_counts_and_the_earlier_ones_stay(ledger):
    duel = ledger.query("SELECT id FROM duels")[0]["id"]
    before = ledger.contents()
    for verdict in ("left", "tie", "right"):
        record_label(ledger, Label(duel, " eve ", verdict, swapped=True, seconds=1.5, note="hm"))
    record_label(ledger, Label(duel, "bo", "skip"))
    found = labels_of(ledger)
    assert [(row["person"], row["verdict"], row["swapped"]) for row in found] == [
        ("eve", "right", True),
        ("bo", "skip", False),
    ]
    assert labels_of(ledger, "eve") == found[:1]
    assert ledger.count("labels") == 4
    after = ledger.contents()
    assert {**after, "labels": []} == {**before, "labels": []}, "labels changed something else"


def test_what_cannot_be_a_label_is_refused(ledger):
    duel = ledger.query("SELECT id FROM duels")[0]["id"]
    for name in ("", "  ", "x" * 65, "a\x1b[2J", "a\nb", "\u202eeve"):
        with pytest.raises(ConfigError, match="names nobody"):
            record_label(ledger, Label(duel, name, "left"))
    with pytest.raises(ConfigError, match="'better' is no verdict; expected left, right"):
        record_label(ledger, Label(duel, "eve", "better"))
    with pytest.raises(LedgerError, match="has no duel 'd0'"):
        record_label(ledger, Label("d0", "eve", "left"))
    assert ledger.count("labels") == 0


def test_a_bout_enters_with_its_verdict_and_is_no_duel(ledger):
    ada, bob = Member("ada", "x", version=2), Member("bob", "x")
    turns = (Message("user", "Hi"), Message("assistant", "Hi."), Message("user", "2+2?"))
    bout = Bout(turns, ada, bob, "4", "5")
    before = gather(ledger)
    record_label(ledger, Label(bout.id, "eve", "left"), bout)
    record_label(ledger, Label(bout.id, "bo", "tie"))
    with pytest.raises(ValueError, match="the label is about"):
        record_label(ledger, Label("d0", "eve", "left"), bout)
    assert ledger.count("bouts") == 1
    after = gather(ledger)
    assert after.accounting == before.accounting
    assert [(b.member, b.won, b.lost, b.tied) for b in after.people.bouts] == [
        ("ada", 1, 0, 1),
        ("bob", 0, 1, 1),
    ]
    assert after.people.council == ()
    row = next(rows_of(ledger, "labels"))
    assert (row["instruction"], row["left_text"], row["iteration"]) == ("2+2?", "4", None)


def test_half_of_a_sample_is_disputed_and_it_is_the_same_each_time(ledger):
    disputed = disputed_duels(ledger)
    kinds = Counter(disputed.values())
    assert min(kinds.values()) >= 5, "the fixture has too few of a kind to show anything"
    wanted = Wanted("eve", sample=10)
    duels = chosen(ledger, wanted, 1)
    assert duels == chosen(ledger, wanted, 1)
    assert duels != chosen(ledger, wanted, 2)
    assert len(set(duels)) == 10
    assert Counter(disputed[duel] for duel in duels) == {True: 5, False: 5}
    only = chosen(ledger, Wanted("eve", sample=99, only_disagreed=True), 1)
    assert {disputed[duel] for duel in only} == {True}
    everything = chosen(ledger, Wanted("eve", sample=999), 1)
    assert set(only) < set(everything)
    # A larger sample has the smaller one in it: who asks for more goes on.
    assert set(duels) <= set(chosen(ledger, Wanted("eve", sample=20), 1))


def test_what_is_narrowed_is_what_is_shown(ledger):
    duels = chosen(ledger, Wanted("eve", sample=99, members=("ada",), iteration=2), 1)
    marks = ",".join("?" * len(duels))
    rows = ledger.query(f"SELECT * FROM duels WHERE id IN ({marks})", duels)
    assert rows
    assert all("ada" in (row["left"], row["right"]) and row["iteration"] == 2 for row in rows)
    with pytest.raises(ConfigError) as found:
        start(ledger, Wanted("eve", sample=0, members=("nobody",), iteration=7))
    assert [fault.split(":")[0] for fault in found.value.faults] == [
        "--sample 0",
        "--member nobody",
        "--iteration 7",
    ]


def test_sides_are_shuffled_blind_and_recorded_on_the_duels_own_sides(ledger):
    at_work = start(ledger, Wanted("eve", sample=20))
    swaps = set()
    while not at_work.done:
        shown = at_work.shown()
        swaps.add(shown.swapped)
        row = ledger.query(
            "SELECT l.text AS left, r.text AS right FROM duels d JOIN responses l ON "
            "l.id = d.left_response JOIN responses r ON r.id = d.right_response WHERE d.id = ?",
            (shown.duel,),
        )[0]
        assert (shown.first, shown.second) == (
            (row["right"], row["left"]) if shown.swapped else (row["left"], row["right"])
        )
        at_work.say("first", seconds=2)
        last = labels_of(ledger)[-1]
        assert (last["verdict"], last["swapped"]) == (
            "right" if shown.swapped else "left",
            shown.swapped,
        )
    assert swaps == {True, False}
    # Another person sees other sides first, so that no side is always the first of all.
    other = start(ledger, Wanted("bo", sample=20))
    sides = []
    for place in range(len(other.duels)):
        other.go(place + 1)
        sides.append(other.shown().swapped)
    mine = {row["duel"]: row["swapped"] for row in labels_of(ledger, "eve")}
    assert sides != [mine[duel] for duel in other.duels]


def test_who_comes_back_goes_on_and_who_goes_back_sees_what_they_said(ledger):
    at_work = start(ledger, Wanted("eve", sample=6))
    assert not at_work.back()
    at_work.say("first")
    at_work.say("tie")
    assert at_work.back()
    assert at_work.shown().said == "tie"
    at_work.say("second")
    again = start(ledger, Wanted("eve", sample=6))
    assert (again.at, again.num_done, again.duels) == (2, 2, at_work.duels)
    again.back()
    assert again.shown().said == "second"
    assert start(ledger, Wanted("bo", sample=6)).num_done == 0


def test_who_asks_for_more_or_went_back_sees_nothing_twice(ledger):
    small = start(ledger, Wanted("eve", sample=6))
    while not small.done:
        small.say("tie")
    large = start(ledger, Wanted("eve", sample=12))
    new = []
    while not large.done:
        assert large.shown().said == ""
        new.append(large.shown().duel)
        large.say("first")
    assert sorted([*new, *small.duels]) == sorted(large.duels)
    large.go(1)
    large.say("second")
    assert large.done, "who went back to mend one is where they were"


def test_a_time_that_nobody_knows_is_none(ledger):
    at_work = start(ledger, Wanted("eve", sample=3))
    at_work.say("first")
    ticks = iter((100.0, 102.5))
    at_work.clock = lambda: next(ticks)
    at_work.shown()
    at_work.say("tie")
    at_work.say("skip")
    assert [row["seconds"] for row in labels_of(ledger)] == [None, 2.5, None]


@pytest.mark.parametrize("said", ["same", "few"])
def test_kappa_of_a_few_or_of_one_word_alone_is_none(ledger, said):
    rows = ledger.query("SELECT duel, winner FROM outcomes WHERE status = 'decided'")
    assert len(rows) > MIN_KAPPA
    some = rows if said == "same" else rows[: MIN_KAPPA - 1]
    for row in some:
        verdict = "left" if said == "same" else row["winner"]
        record_label(ledger, Label(row["duel"], "eve", verdict))
    (line,) = people(ledger).council
    assert line.kappa.n == len(some)
    assert line.kappa.value is None
    assert line.share.value is not None


def test_agreement_is_counted_as_by_hand(ledger):
    council = {
        row["duel"]: row["winner"]
        for row in ledger.query("SELECT duel, winner FROM outcomes WHERE status = 'decided'")
    }
    disputed = disputed_duels(ledger)
    clear = [d for d in council if not disputed[d]][:8]
    other = [d for d in council if disputed[d]][:4]
    turned = {"left": "right", "right": "left"}
    for number, duel in enumerate(clear):
        record_label(ledger, Label(duel, "eve", council[duel] if number else turned[council[duel]]))
    for number, duel in enumerate(other):
        verdict = ("tie", "skip", council[duel], turned[council[duel]])[number]
        record_label(ledger, Label(duel, "eve", verdict))
    found = people(ledger)
    (line,) = found.council
    assert (line.who, line.person) == (COUNCIL, "eve")
    assert (line.clear.equal, line.clear.n) == (7, 8)
    assert (line.disputed.equal, line.disputed.n) == (1, 2)
    assert (line.share.equal, line.share.n) == (8, 10)
    assert line.kappa.n == 11
    said = {row["duel"]: row["verdict"] for row in labels_of(ledger) if row["verdict"] != "skip"}
    equal = sum(council[duel] == verdict for duel, verdict in said.items()) / 11
    sides = ("left", "right", "tie")
    chance = (
        sum(
            sum(council[duel] == side for duel in said) * list(said.values()).count(side)
            for side in sides
        )
        / 121
    )
    assert line.kappa.value == pytest.approx((equal - chance) / (1 - chance))
    assert line.kappa.interval.low < line.kappa.value < line.kappa.interval.high
    weight = sum(disputed[d] for d in council) / len(council)
    share, interval = line.over_run
    assert share == pytest.approx(weight * 1 / 2 + (1 - weight) * 7 / 8)
    assert interval.low < share < interval.high
    (person,) = found.persons
    assert (person.num_labels, person.num_sided, person.num_ties, person.num_skipped) == (
        12, 10, 1, 1,
    )  # fmt: skip
    for judge in found.judges:
        rows = ledger.query(
            "SELECT duel, score_left AS a, score_right AS b FROM judgments WHERE judge = ? "
            "AND a <> b AND duel IN (SELECT duel FROM labels WHERE verdict IN ('left', 'right'))",
            (judge.who,),
        )
        said = {row["duel"]: row["verdict"] for row in labels_of(ledger)}
        right = sum(said[row["duel"]] == ("left" if row["a"] > row["b"] else "right")
                    for row in rows)  # fmt: skip
        assert (judge.share.equal, judge.share.n) == (right, len(rows))


def test_people_who_say_the_same_agree_and_most_of_them_count(ledger):
    duels = [row["id"] for row in ledger.query("SELECT id FROM duels LIMIT 10")]
    for number, duel in enumerate(duels):
        verdict = "left" if number % 2 else "right"
        for name in ("eve", "bo"):
            record_label(ledger, Label(duel, name, verdict))
        record_label(ledger, Label(duel, "contrary", "right" if number % 2 else "left"))
    found = people(ledger)
    same = {(line.who, line.person): line.kappa.value for line in found.between}
    assert same == {("bo", "contrary"): -1.0, ("bo", "eve"): 1.0, ("contrary", "eve"): -1.0}
    assert [line.person for line in found.council][-1] == "most people"
    lines = {line.person: line.share for line in found.council}
    assert lines["most people"] == lines["eve"]
    assert majority(["left", "right"]) is None
    assert majority(["left", "tie", "tie"]) is None
    assert majority(["right", "right", "tie", "skip", "skip"]) == "right"


# Anchors ---------------------------------------------------------------------------------------


def settings(home, *more: str):
    return load(home / "config.yaml", ["iterations=3", *more])


def test_labels_anchor_the_next_iteration_and_are_fixed_there(finished, path):
    """A judge whom people always contradict is believed less, and recomputing changes nothing."""
    folder = path.parent
    with Ledger(path, writable=True) as ledger:
        rows = ledger.query(
            "SELECT duel, judge, score_left > score_right AS left FROM judgments "
            "WHERE score_left <> score_right AND judge IN ('ada', 'bob')"
        )
        for row in rows:  # whatever ada says is right; bob is wrong where she is silent
            if row["judge"] == "ada":
                record_label(ledger, Label(row["duel"], "eve", "left" if row["left"] else "right"))
        known = {row["duel"] for row in labels_of(ledger)}
        for row in rows:
            if row["judge"] == "bob" and row["duel"] not in known:
                record_label(ledger, Label(row["duel"], "eve", "right" if row["left"] else "left"))
        labels = {row["duel"]: row["verdict"] for row in labels_of(ledger)}
    plain = folder.with_name("plain")
    align(settings(finished), plain)
    align(settings(finished, "aggregate.anchors=labels"), folder)
    with Ledger(path) as ledger:
        anchored = ledger.state(3)["reliability"]
        assert json.loads(ledger.get("anchors:3")) == labels
        assert json.loads(ledger.get("config"))["aggregate"]["anchors"] == "labels"
        assert ledger.get("anchors:2") is None, "an iteration that is over was touched"
        first = ledger.contents()
    with Ledger(plain / "ledger.sqlite") as ledger:
        unanchored = ledger.state(3)["reliability"]
        assert ledger.contents()["judgments"] == first["judgments"]
    assert anchored["ada"] > unanchored["ada"]
    assert anchored["ada"] > 0.9
    assert anchored["bob"] < unanchored["bob"]


def test_labels_that_come_while_an_iteration_is_half_done_do_not_change_it(finished, path):
    config = settings(finished, "aggregate.anchors=labels")
    with Ledger(path, writable=True) as ledger:
        duels = [row["id"] for row in ledger.query("SELECT id FROM duels LIMIT 12")]
        for duel in duels[:6]:
            record_label(ledger, Label(duel, "eve", "left"))
    twin = path.parent.with_name("twin")
    shutil.copytree(path.parent, twin)
    align(config, path.parent)
    # The twin was stopped after its first answers: its anchors are fixed, its duels are not made.
    with Ledger(twin / "ledger.sqlite", writable=True) as ledger:
        from phalanx.anchoring import anchors_of

        anchors_of(ledger, config, 3)
        for duel in duels:
            record_label(ledger, Label(duel, "eve", "right"))
    align(config, twin)
    with Ledger(path) as one, Ledger(twin / "ledger.sqlite") as other:
        ours, theirs = one.contents(), other.contents()
        assert ours["states"] == theirs["states"]
        assert ours["outcomes"] == theirs["outcomes"]


@pytest.mark.parametrize(("begun", "later"), [("none", "labels"), ("labels", "none")])
def test_an_iteration_that_has_begun_keeps_its_setting(begun, later, finished, path, monkeypatch):
    """Stopped while it judged, and resumed with the other setting: as if it had not been."""
    folder = path.parent
    with Ledger(path, writable=True) as ledger:
        for row in ledger.query("SELECT id FROM duels LIMIT 12"):
            record_label(ledger, Label(row["id"], "eve", "left"))
    straight = folder.with_name("straight")
    shutil.copytree(folder, straight)
    align(settings(finished, f"aggregate.anchors={begun}"), straight)

    def stop(*_: object, **__: object) -> None:
        raise RuntimeError("stopped")

    with monkeypatch.context() as stopped:
        stopped.setattr(Ledger, "record_iteration", stop)
        with pytest.raises(RuntimeError, match="stopped"):
            align(settings(finished, f"aggregate.anchors={begun}"), folder)
    align(settings(finished, f"aggregate.anchors={later}"), folder)
    with Ledger(path) as one, Ledger(straight / "ledger.sqlite") as other:
        assert one.state(3) == other.state(3)
        assert one.get("anchors:3") == other.get("anchors:3")
        assert (one.get("anchors:3") is None) == (begun == "none")
