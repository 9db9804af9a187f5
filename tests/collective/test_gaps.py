"""Advice fits what happened: failed requests are no unreadable verdicts, and judges differ."""

from __future__ import annotations

import pytest

from phalanx.collective.gaps import has_failed, too_many
from phalanx.config.schema import Config
from phalanx.types import Judgment

ERROR = {"error": "timeout", "message": "too slow"}
WRITTEN = '{"error": "timeout", "message": "too slow"}'


def missing(raw: dict, protocol: str = "pairwise", reason: str = "first: no verdict") -> Judgment:
    return Judgment("d", "judge", protocol, None, None, reason=reason, raw=raw)


@pytest.mark.parametrize(
    ("raw", "failed"),
    [
        ({"first": ERROR, "second": "[[A]]"}, True),
        ({"first": WRITTEN, "second": "hm"}, False),
        ({"criteria": ERROR, "first": "hm", "second": "hm"}, False),
        ({"first.assess.ada": ERROR, "first": "hm", "second": "hm"}, False),
        ({"first.assess.ada": ERROR, "second.assess.ada": ERROR}, True),
    ],
)
def test_a_failure_is_one_of_the_request_and_not_of_the_words(raw, failed):
    assert has_failed(missing(raw)) is failed


def test_a_judgment_that_can_be_read_has_not_failed():
    read = Judgment("d", "mixture", "moa", 1.0, 0.0, raw={"first": ERROR, "second": "[[A]]"})
    assert not has_failed(read)


@pytest.mark.parametrize(
    ("protocol", "settings", "advice"),
    [
        ("moa", {}, "reward.verdict: options"),
        ("rubric", {}, "judge.protocol: expected or likelihood"),
        ("expected", {}, "judge.protocol: rubric or likelihood"),
        ("likelihood", {}, "judge.protocol: rubric or pairwise"),
        ("reward", {}, "another reward model"),
        ("moa", {"reward": {"verdict": "options"}}, "reward.aggregator"),
    ],
)
def test_advice_names_what_is_not_in_use(protocol, settings, advice):
    if protocol not in ("moa", "reward"):
        settings = {"judge": {"protocol": protocol}}
    config = Config.model_validate(settings)
    said = too_many([missing({"first": "hm"}, protocol)] * 3, 3, 3, config)
    assert "3 of 3 judgments could not be read (limit" in said
    assert advice in said
    assert "another --out" in said, "another judge is another configuration"
    assert "asked again" not in said
    if protocol == "moa":
        assert "judge.protocol" not in said
        assert ("verdict: options" in said) is not bool(settings)


def test_failures_are_named_as_such():
    failed = missing({"first": ERROR}, reason="first: timeout: too slow")
    said = too_many([failed, failed, missing({"first": "hm"})], 3, 4, Config())
    assert "3 of 4 judgments are missing" in said
    assert "timeout: too slow" in said
    assert "failed requests are asked again" in said
    assert "could not be read" not in said
    few = too_many([failed, missing({"a": "hm"}), missing({"a": "hm"})], 3, 4, Config())
    assert "could not be read" in few
    assert "requests that failed are asked again" in few


def test_what_servers_say_is_one_line_of_it_and_there_is_a_way_to_go_on():
    page = "first: engine: <html>\n<body>\n" + "bad gateway " * 100
    gap = missing({"first": ERROR, "second": "[[A]]"}, reason=page)
    said = too_many([gap] * 3, 3, 10, Config(), limited=(0.125, "guard.max_unreadable"))
    assert "\n" not in said
    assert len(said) < 600
    assert "first: engine: <html> <body> bad gateway" in said
    assert "limit 12.5%" in said
    assert said.endswith("or go on here: phalanx run CONFIG guard.max_unreadable=0.3")
