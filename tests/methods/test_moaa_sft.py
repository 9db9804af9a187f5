"""Stage 1 of MoAA on the scripted engine: who writes what, and what students get to learn."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config.mixing import students_of
from phalanx.config.schema import Config
from phalanx.dispatch import Dispatcher
from phalanx.engines.scripted import ScriptedEngine
from phalanx.errors import ConfigError, JudgmentError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.methods.moaa_sft import demonstrate
from phalanx.progress import Silent
from phalanx.types import Instruction, Iteration, Member, Message, Standing

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NAMES = ("ada", "bob", "cora", "dan", "stu")
SCRIPT = {
    "sampling": [
        {"when": '"score"', "reply": '{"score": 4}'},
        {"when": ".", "purpose": "rewrite", "reply": "And an odd one?"},
        {"when": ".", "purpose": "aggregate", "reply": "Seven, they say."},
        {"when": "mute", "member": "bob", "reply": ""},
        {"when": "breaks", "fail": {"kind": "engine", "message": "provoked"}},
        {"when": "long", "member": "ada", "reply": "Seven and", "finish": "length"},
        {"when": ".", "member": "ada", "reply": "Seven."},
        {"when": ".", "member": "bob", "reply": "Nine."},
        {"when": ".", "member": "cora", "reply": "Eleven, or not."},
        {"when": ".", "reply": "Two."},
    ],
    "options": [
        {"when": "<<<user .{20,30}And six", "purpose": "fit", "weights": {"no": 1}},
        {"when": ".", "purpose": "fit", "weights": {"yes": 1}},
    ],
}
LIKES_SEVEN = {"when": '>>>\\nSeven.*"score"', "reply": '{"score": 9}'}
TALK = Instruction(
    "talk",
    "Name a prime.",
    domain="primes",
    later=(
        Message("assistant", "Five."),
        Message("user", "And six?"),
        Message("assistant", "It is none."),
        Message("user", "Thanks. One more?"),
    ),
)


class Asked:
    """An ``ask`` that answers from a script and keeps what was asked."""

    def __init__(self, script=SCRIPT, *rules) -> None:
        script = {**script, "sampling": [*rules, *script["sampling"]]}
        self.engine = ScriptedEngine({"script:s": script})
        self.asked: list = []

    def __call__(self, phase, requests):
        replies = self.engine.respond(requests)
        self.asked += [(phase, *both) for both in zip(requests, replies, strict=True)]
        return replies

    @property
    def ids(self):
        return {request.id for _, request, _ in self.asked}


def config(*data, mixture=(), judge="rubric", **moaa) -> Config:
    """Students ``stu`` and others; the mixture is ada and bob under dan."""
    students = [
        {"name": "stu" if n == 0 else f"stu{n}", "data": name} for n, name in enumerate(data)
    ]
    return Config.model_validate(
        {
            "method": "moaa",
            "mixture": {"proposers": ["ada", "bob"], "aggregator": "dan", **dict(mixture)},
            "moaa": {"students": students, **moaa},
            "judge": {"protocol": judge},
        }
    )


def start(*instructions, count=4) -> Iteration:
    members = tuple(Member(name, "script:s", engine="scripted") for name in NAMES)
    plain = tuple(Instruction(f"i{n}", f"Name a prime, not {n}.") for n in range(count))
    return Iteration(
        number=1,
        seed=7,
        members=members,
        instructions=instructions or plain,
        standings={"ada": Standing()},
        reliability={"ada": 0.5},
        earlier=(members,),
    )


def made(settings: Config, iteration: Iteration, asked, joined=()):
    students = students_of(settings)
    return demonstrate(iteration, students, iteration.members, joined, asked, settings)


def transcript(asked: Asked, result) -> str:
    lines = []
    for phase, request, reply in asked.asked:
        lines.append(f"## {phase} | {request.member.key} | {request.purpose}")
        lines += [f"[{message.role}] {message.content}" for message in request.messages]
        lines += [f"-> {reply.said}", ""]
    for row in result.demonstrations:
        history = " / ".join(f"{m.role}: {m.content}" for m in row.history)
        lines.append(
            f"row {row.builder} {row.instruction}.{row.turn} by {row.writer}: ({history}) "
            f"{row.prompt!r} -> {row.response!r} drop={row.drop!r}"
        )
    for duel, outcome in zip(result.duels, result.outcomes, strict=True):
        lines.append(f"duel {duel.left} {duel.right}: {outcome.status} {outcome.winner}")
    lines += [f"metric {name} {value}" for name, value in result.metrics.items()]
    return "\n".join(lines) + "\n"


def test_golden_transcript():
    """Set PHALANX_UPDATE_GOLDEN=1 to write it anew, and read the difference before you commit."""
    asked = Asked(SCRIPT, LIKES_SEVEN)
    settings = config("mixture", "best_of", mixture={"layers": 3})
    result = made(settings, start(TALK, Instruction("one", "Name a mute prime.")), asked)
    found = transcript(asked, result)
    path = GOLDEN / "moaa_sft.txt"
    if os.environ.get("PHALANX_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


# Builders ----------------------------------------------------------------------------------------


def test_builders_share_the_answers_of_the_teachers():
    everything = ("mixture", "combined", "random", "best_of", "teacher:bob", "teacher:cora")
    asked = Asked()
    result = made(config(*everything), start(), asked)
    teaching = {(r.member.name, r.id) for _, r, _ in asked.asked if r.purpose == "propose"}
    assert Counter(name for name, _ in teaching) == {"ada": 4, "bob": 4, "dan": 4, "cora": 4}
    rows = Counter(row.builder for row in result.demonstrations)
    assert rows == {name: 12 if name == "combined" else 4 for name in everything}
    assert list(rows) == list(everything)
    assert len({row.id for row in result.demonstrations}) == len(result.demonstrations)


def test_whoever_asks_most_comes_first_and_the_rows_keep_the_order_of_the_students():
    """So that a builder that needs a part of the answers finds whole batches answered."""
    asked = Asked()
    result = made(config("random", "best_of", "mixture"), start(count=3), asked)
    phases = list(dict.fromkeys(phase for phase, _, _ in asked.asked))
    assert phases == ["propose 1", "aggregate", "teachers", "judge"]
    teaching = [request.id for phase, request, _ in asked.asked if phase == "teachers"]
    assert set(teaching[9:]) <= set(teaching[:9])
    assert len(teaching) == 12
    builders = list(dict.fromkeys(row.builder for row in result.demonstrations))
    assert builders == ["random", "best_of", "mixture"]


def test_only_what_a_student_learns_from_is_built_and_once():
    asked = Asked()
    result = made(config("teacher:bob", "none", "teacher:bob"), start(), asked)
    assert [row.writer for row in result.demonstrations] == ["bob"] * 4
    assert {(phase, r.member.name) for phase, r, _ in asked.asked} == {("teachers", "bob")}
    assert len(asked.asked) == 4


def test_the_mixture_writes_what_its_aggregator_says():
    asked = Asked()
    result = made(config("mixture"), start(count=1), asked)
    [row] = result.demonstrations
    [final] = [request for phase, request, _ in asked.asked if phase == "aggregate"]
    assert (row.prompt, row.response) == ("Name a prime, not 0.", "Seven, they say.")
    assert (row.writer, row.response_id, row.history) == ("mixture", final.id, ())
    assert result.metrics["proposals.asked.ada"] == 1
    assert result.metrics["mixed.without_answer"] == 0


def test_combined_has_every_teachers_answer_and_random_one_of_them():
    result = made(config("combined", "random"), start(count=40), Asked())
    combined = [row for row in result.demonstrations if row.builder == "combined"]
    assert Counter(row.writer for row in combined) == {"ada": 40, "bob": 40, "dan": 40}
    answers = {(row.instruction, row.writer): row.response_id for row in combined}
    drawn = [row for row in result.demonstrations if row.builder == "random"]
    assert {row.writer for row in drawn} == {"ada", "bob", "dan"}
    assert all(answers[row.instruction, row.writer] == row.response_id for row in drawn)


def test_random_draws_the_same_whatever_the_order_of_instructions():
    iteration = start(count=20)
    turned = replace(iteration, instructions=iteration.instructions[::-1])
    one, two = (made(config("random"), given, Asked()) for given in (iteration, turned))
    assert {r.instruction: r.writer for r in one.demonstrations} == {
        r.instruction: r.writer for r in two.demonstrations
    }


def test_best_of_takes_the_answer_that_the_ranker_likes_best():
    result = made(config("best_of"), start(), Asked(SCRIPT, LIKES_SEVEN))
    assert [row.writer for row in result.demonstrations] == ["ada"] * 4
    assert len(result.duels) == len(result.judgments) == len(result.outcomes) == 4
    assert result.metrics["num_judgments"] == 4
    for duel in result.duels:
        assert "ada#1" in duel.contestants
        assert {(duel.id, name) for name in duel.contestants} <= set(result.responses)
    chosen = {row.response_id for row in result.demonstrations}
    assert chosen <= set(result.responses.values())


def test_best_of_by_pairs_has_a_named_ranker_judge_every_pair():
    verdict = {"when": "\\[\\[A\\]\\]", "reply": "[[C]]", "member": "cora"}
    asked = Asked(SCRIPT, verdict)
    settings = config("best_of", judge="pairwise", ranker="cora")
    result = made(settings, start(count=20), asked)
    assert {r.member.name for _, r, _ in asked.asked if r.purpose == "judge"} == {"cora"}
    assert len(result.duels) == 20 * 3
    # Liked alike: no teacher wins by its place in the pool.
    assert {row.writer for row in result.demonstrations} == {"ada", "bob", "dan"}
    assert result.metrics["best_of.tied"] == 20


def test_best_of_drops_what_the_ranker_could_not_read_and_says_so():
    silent = {"when": '"score"', "reply": "I cannot say."}
    with pytest.raises(JudgmentError, match=r"'best_of' made no demonstration.*4 unscored"):
        made(config("best_of"), start(), Asked(SCRIPT, silent))


def test_the_same_answer_of_all_teachers_needs_no_ranker():
    alike = {"when": "^Name", "purpose": "propose", "reply": "Seven."}
    asked = Asked(SCRIPT, alike)
    result = made(config("best_of"), start(), asked)
    assert [row.response for row in result.demonstrations] == ["Seven."] * 4
    assert result.metrics["best_of.unranked"] == 4
    assert not [r for _, r, _ in asked.asked if r.purpose == "judge"]


def test_students_that_join_propose_but_no_baseline_learns_from_them():
    asked = Asked()
    result = made(config("mixture", "combined"), start(count=1), asked, joined=["stu"])
    proposing = [r.member.name for phase, r, _ in asked.asked if phase == "propose 1"]
    assert proposing == ["ada", "bob", "stu"]
    assert [r.writer for r in result.demonstrations] == ["mixture", "ada", "bob", "dan"]


def test_members_of_the_mixture_are_the_versions_that_were_given():
    iteration = start(count=1)
    newest = tuple(replace(member, version=3) for member in iteration.members)
    asked = Asked()
    settings = config("mixture")
    demonstrate(
        replace(iteration, members=newest), students_of(settings), iteration.members, (), asked,
        settings,
    )  # fmt: skip
    assert {r.member.version for _, r, _ in asked.asked} == {0}


# What is dropped ---------------------------------------------------------------------------------


def test_failed_empty_and_too_few_are_rows_with_a_reason():
    given = [Instruction("ok", "Name one."), Instruction("bad", "This breaks."),
             Instruction("mute", "Be mute.")]  # fmt: skip
    settings = config("mixture", "teacher:bob", mixture={"min_proposals": 2})
    result = made(settings, start(*given), Asked())
    found = [(row.builder, row.instruction, row.drop) for row in result.demonstrations]
    assert found == [
        ("mixture", "ok", ""), ("mixture", "bad", "too_few_proposals"),
        ("mixture", "mute", "too_few_proposals"),
        ("teacher:bob", "ok", ""), ("teacher:bob", "bad", "failed"),
        ("teacher:bob", "mute", "empty"),
    ]  # fmt: skip
    metrics = result.metrics
    assert metrics["mixed.without_answer"] == 2
    assert metrics["mixed.without_answer.too_few_proposals"] == 2
    assert metrics["proposals.left_out.ada"] == 1
    assert metrics["proposals.left_out.bob"] == 2
    assert metrics["num_dropped.teacher:bob.empty"] == 1


@pytest.mark.parametrize(("setting", "drop"), [("drop", "truncated"), ("allow", "")])
def test_truncated_answers_are_learned_only_where_that_is_allowed(setting, drop):
    given = [Instruction("long", "Name a long one."), Instruction("ok", "Name one.")]
    result = made(config("teacher:ada", truncated=setting), start(*given), Asked())
    assert [(r.truncated, r.drop) for r in result.demonstrations] == [(True, drop), (False, "")]


def test_a_truncated_answer_does_not_compete_where_it_is_not_learned():
    given = [Instruction("long", "Name a long one.")]
    for setting, winner in (("drop", "bob"), ("allow", "ada")):
        likes = {"when": '>>>\\nNine.*"score"', "reply": '{"score": 5}'}
        asked = Asked(SCRIPT, LIKES_SEVEN, likes)
        result = made(config("best_of", truncated=setting), start(*given), asked)
        assert [r.writer for r in result.demonstrations] == [winner]


def test_the_sums_of_every_builder_add_up_to_its_rows():
    given = [TALK, Instruction("bad", "This breaks."), Instruction("mute", "Be mute."),
             Instruction("long", "Name a long one.")]  # fmt: skip
    settings = config("mixture", "combined", "random", "best_of", multi_turn="cut")
    result = made(settings, start(*given), Asked())
    for builder, rows in Counter(row.builder for row in result.demonstrations).items():
        dropped = [
            n for key, n in result.metrics.items() if key.startswith(f"num_dropped.{builder}.")
        ]
        assert result.metrics[f"num_demonstrations.{builder}"] + sum(dropped) == rows
        assert rows == 6 * (3 if builder == "combined" else 1)


def test_a_builder_without_a_single_row_to_learn_stops_the_run_and_says_why():
    given = [Instruction("bad", "This breaks.")]
    with pytest.raises(JudgmentError, match=r"'mixture' made no demonstration.*1 too_few_propos"):
        made(config("mixture"), start(*given), Asked())


@pytest.mark.parametrize(
    ("rule", "again", "elsewhere"),
    [
        ({"reply": "Endless", "finish": "length"}, False, True),
        ({"reply": " "}, False, False),
        ({"fail": {"kind": "engine", "message": "provoked"}}, True, False),
    ],
)
def test_the_remedy_is_one_that_helps(rule, again, elsewhere):
    given = [Instruction("one", "Say something new.")]
    aggregate = {"when": "something new", "purpose": "aggregate", **rule}
    with pytest.raises(JudgmentError, match="made no demonstration") as raised:
        made(config("mixture"), start(*given), Asked(SCRIPT, aggregate))
    assert ("asked again" in str(raised.value)) is again
    assert ("--out" in str(raised.value)) is elsewhere


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (config("magic"), "data is 'magic'; expected mixture, combined, random, best_of, teacher"),
        (config("teacher:eve"), "no member is named eve"),
        (config("mixture", rewriter="eve"), "moaa.rewriter: no member is named eve"),
    ],
)
def test_a_name_that_is_none_is_refused(settings, fault):
    with pytest.raises(ConfigError, match=fault):
        made(settings, start(), Asked())


# Several turns -----------------------------------------------------------------------------------


def test_every_turn_is_a_row_with_the_new_answers_before_it():
    result = made(config("teacher:cora", multi_turn="faithful"), start(TALK), Asked())
    rows = result.demonstrations
    assert [(row.turn, row.prompt, row.domain) for row in rows] == [
        (0, "Name a prime.", "primes"),
        (1, "And six?", "primes"),
        (2, "Thanks. One more?", "primes"),
    ]
    assert [m.content for m in rows[2].history] == [
        "Name a prime.", "Eleven, or not.", "And six?", "Eleven, or not.",
    ]  # fmt: skip
    assert result.metrics["turns.teacher:cora.later"] == 2


@pytest.mark.parametrize(
    ("mode", "prompts", "drops", "counts"),
    [
        ("rewrite", ["Name a prime.", "And an odd one?", "Thanks. One more?"], ["", "", ""],
         {"later": 2, "fitting": 1, "rewritten": 1, "cut": 0}),
        ("cut", ["Name a prime.", "And six?", "Thanks. One more?"], ["", "cut", "cut"],
         {"later": 1, "fitting": 0, "rewritten": 0, "cut": 1}),
    ],
)  # fmt: skip
def test_turns_that_do_not_fit_are_mended_the_same_way_for_every_builder(
    mode, prompts, drops, counts
):
    builders = ("mixture", "teacher:ada", "best_of")
    result = made(config(*builders, multi_turn=mode), start(TALK), Asked(SCRIPT, LIKES_SEVEN))
    for builder in builders:
        rows = [row for row in result.demonstrations if row.builder == builder]
        assert [row.prompt for row in rows] == prompts
        assert [row.drop for row in rows] == drops
        for name, count in counts.items():
            assert result.metrics[f"turns.{builder}.{name}"] == count


def test_a_ranker_of_later_turns_is_shown_the_conversation_and_the_answer():
    asked = Asked(SCRIPT, LIKES_SEVEN)
    made(config("best_of", multi_turn="faithful"), start(TALK), asked)
    judged = [r.messages[-1].content for _, r, _ in asked.asked if r.purpose == "judge"]
    first = [text for text in judged if "Go on with this conversation" not in text]
    assert len(first) == 3
    later = [text for text in judged if "And six?" in text and "One more?" not in text]
    assert len(later) == 3
    assert all(text.index("Name a prime.") < text.index("\nSeven.\n") for text in later)
    assert not any("Five." in text for text in judged)


@pytest.mark.parametrize("protocol", ["likelihood", "reward", "ranker"])
def test_judges_without_a_prompt_get_later_turns_as_a_conversation(protocol):
    """Their score is that of the response as the next assistant turn."""
    kind = "reward" if protocol == "ranker" else protocol
    script = {
        **SCRIPT,
        "likelihood": [{"when": ".", "logprob_per_token": [-1.5, -0.5]}],
        "reward": [{"when": "Seven", "reward": 2.0}, {"when": ".", "reward": 1.0}],
    }
    asked = Asked(script)

    def ask(phase, requests):
        flags = ("ranker",) if protocol == "ranker" and phase.startswith("judge") else ()
        return [replace(reply, flags=flags) for reply in asked(phase, requests)]

    settings = config("best_of", judge=kind, ranker="cora", multi_turn="faithful")
    result = made(settings, start(TALK), ask)
    judged = [r for _, r, _ in asked.asked if r.purpose == "judge"]
    assert not any("Go on with this conversation" in m.content for r in judged for m in r.messages)
    last = [r for r in judged if r.messages[-1].content == "Thanks. One more?"]
    assert last
    for request in last:
        assert [m.role for m in request.messages] == ["user", "assistant"] * 2 + ["user"]
        first, second = (m.content for m in request.messages[1:4:2])
        assert [first, second] == [row.response for row in result.demonstrations[:2]]
        if protocol != "likelihood":
            assert {first, second} <= set(request.shortenable)


def test_earlier_answers_in_a_transcript_may_be_shortened_and_questions_not():
    asked = Asked(SCRIPT, LIKES_SEVEN)
    made(config("best_of", multi_turn="faithful"), start(TALK), asked)
    judged = [r for _, r, _ in asked.asked if r.purpose == "judge"]
    (later, *_) = [r for r in judged if "One more?" in r.messages[-1].content]
    assert "Seven." in later.shortenable
    assert not {"Name a prime.", "And six?", "Thanks. One more?"} & set(later.shortenable)


def test_reasoning_before_an_answer_is_not_learned_and_counted():
    rules = [
        {"when": "aloud", "member": "ada", "reply": "<think>Seven?</think>\nSeven."},
        {"when": "lost", "member": "ada", "reply": "<think>Seven? No,", "finish": "length"},
    ]
    instructions = [
        Instruction("a", "Name a prime aloud."),
        Instruction("b", "Name a lost prime."),
        Instruction("c", "Name one."),
    ]
    result = made(config("teacher:ada"), start(*instructions), Asked(SCRIPT, *rules))
    found = [(row.response, row.drop) for row in result.demonstrations]
    assert found == [("Seven.", ""), ("", "truncated"), ("Seven.", "")]
    assert result.metrics["reasoning_removed.teacher:ada"] == 2
    assert result.metrics["num_dropped.teacher:ada.truncated"] == 1


def test_an_answer_of_the_mixture_that_begins_with_a_tag_keeps_it():
    about = "<think> opens a block."
    rule = {"when": "tag", "member": "dan", "reply": f"<think>Say it.</think>{about}"}
    instruction = Instruction("t", "What does the tag do?")
    result = made(config("mixture"), start(instruction), Asked(SCRIPT, rule))
    assert [(row.response, row.drop) for row in result.demonstrations] == [(about, "")]
    assert result.metrics["reasoning_removed.mixture"] == 1


def test_single_turns_have_no_counts_of_turns():
    result = made(config("mixture"), start(), Asked())
    assert not [name for name in result.metrics if name.startswith("turns.")]


# The ledger --------------------------------------------------------------------------------------


def test_the_ledger_keeps_every_row_and_nothing_is_asked_twice(tmp_path):
    settings = config("mixture", "combined", "best_of")
    iteration = start(TALK, Instruction("ok", "Name one."))
    with Ledger(run_ledger_path(tmp_path), writable=True) as ledger:
        ledger.record_start({"seed": "7"}, iteration.members, iteration.instructions)
        results = []
        for _ in range(2):
            script = {**SCRIPT, "sampling": [LIKES_SEVEN, *SCRIPT["sampling"]]}
            engine = ScriptedEngine({"script:s": script}, batch_size=1, keep_calls=True)
            ask = Dispatcher(ledger, lambda _, e=engine: e, Silent(), lambda: False, 1).ask
            results.append((made(settings, iteration, ask), len(engine.calls)))
        (result, calls), (again, none) = results
        assert again == result
        assert none == 0
        ledger.record_iteration(1, result)
        for builder in ("mixture", "combined", "best_of"):
            mine = [row for row in result.demonstrations if row.builder == builder]
            assert ledger.demonstrations(1, builder) == mine
        stored = {row["id"] for row in ledger.query("SELECT id FROM responses")}
    wrote = {row.response_id for row in result.demonstrations if row.response_id}
    assert wrote
    assert wrote <= stored
    assert len(stored) == calls
    assert (result.standings, result.reliability) == (iteration.standings, iteration.reliability)
