"""The mixture as a method: the same requests as where it is measured beside another one."""

from __future__ import annotations

import pytest

from phalanx.collective.mixture import mixture_from
from phalanx.config import Config
from phalanx.errors import ConfigError
from phalanx.evaluate import answers
from phalanx.tasks import TaskItem
from phalanx.types import Sampling
from tests.methods.answering import WANT, as_text, ids, member, question, reach, real_run
from tests.methods.rivals import Asked, golden

SCRIPT = {
    "sampling": [
        {"when": "broken", "member": "bob", "fail": {"kind": "engine", "message": "broken"}},
        {"when": "silent", "purpose": "aggregate", "reply": ""},
        {"when": "lost", "purpose": "propose", "fail": {"kind": "engine", "message": "broken"}},
        {"when": ".", "purpose": "propose", "reply": ["It is 7.", "It is 8."]},
        {"when": ".", "purpose": "aggregate", "reply": "All in all 7."},
    ]
}
TEXTS = ("How many apples?", "How many broken?", "How many silent?", "How many lost?")
QUESTIONS = [question(text) for text in TEXTS]
SETTINGS = {"mixture": {"proposers": ["ada", "bob"], "aggregator": "cora"}}
SELF = {"mixture": {"proposers": ["ada"], "aggregator": "ada", "samples": 3}}


def test_golden():
    asked, found = reach("mixture", SETTINGS, SCRIPT, QUESTIONS)
    golden("mixture", as_text(asked, found))


def test_the_aggregator_writes_as_wanted_and_proposers_by_their_own_settings():
    want = Sampling(0.0, 1.0, 0, 9)
    asked, found = reach("mixture", SETTINGS, SCRIPT, QUESTIONS[:1], want=want)
    wants = {request.purpose: request.want for request in asked.requests}
    assert wants["aggregate"] == want
    assert wants["propose"].max_new_tokens == Config().mixture.propose.max_new_tokens
    assert found[0].writer == "cora"


def test_self_moa_is_one_member_with_several_samples():
    asked, found = reach("mixture", SELF, SCRIPT, QUESTIONS[:1])
    assert [request.member.name for request in asked.requests] == ["ada"] * 4
    assert found[0].counts == {"answers": 3, "failed": 0}


def test_failures_are_left_out_and_counted_and_no_answer_has_a_reason():
    _, (_, broken, silent, lost) = reach("mixture", SETTINGS, SCRIPT, QUESTIONS)
    assert broken.counts == {"answers": 2, "failed": 1}
    assert broken.response.text == "All in all 7."
    assert silent.reason == "empty: the aggregator wrote nothing"
    assert lost.reason.startswith("too_few_proposals")


def test_the_requests_are_those_with_which_a_mixture_is_measured():
    config = Config.model_validate({"seed": 7, "evaluate": {"max_new_tokens": 64}, **SETTINGS})
    members = [member(name) for name in ("ada", "bob", "cora", "dan")]
    items = [TaskItem(text, text, "7", "", "t", "number") for text in TEXTS]
    measured = Asked(SCRIPT)
    answers(mixture_from(config, members), items, measured, config, phase="evaluate")
    asked, _ = reach("mixture", SETTINGS, SCRIPT, QUESTIONS, want=WANT)
    assert ids(asked) == ids(measured)
    assert asked.phases == measured.phases


def test_without_an_aggregator_it_is_refused():
    with pytest.raises(ConfigError, match=r"mixture\.aggregator is not set"):
        reach("mixture", {}, SCRIPT, QUESTIONS)


def test_asked_again_it_is_the_same():
    first, found = reach("mixture", SETTINGS, SCRIPT, QUESTIONS)
    again, same = reach("mixture", SETTINGS, SCRIPT, QUESTIONS)
    assert (ids(first), found) == (ids(again), same)


@pytest.mark.real
def test_a_run_on_the_embedded_model(tmp_path):
    settings = {"proposers": ["ada", "bob"], "aggregator": "cora", "layers": 2,
                "propose": {"max_new_tokens": 4}}  # fmt: skip
    rows, facts = real_run(tmp_path, "mixture", mixture=settings)
    assert set(rows) == {"ada", "bob", "cora", "mixture"}
    assert '"answers":2' in facts["together:0:mixture"]
