from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from phalanx import skills
from phalanx.errors import ConfigError
from phalanx.skills import domains, lexicon


@pytest.mark.parametrize("domain", skills.DOMAINS)
def test_parts_share_no_text_and_no_fact(domain: str) -> None:
    parts = {part: skills._questions(domain, part) for part in skills.PARTS}
    texts = [{text for q in parts[part] for text in q.texts} for part in skills.PARTS]
    keys = [{q.key for q in parts[part]} for part in skills.PARTS]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert not texts[first] & texts[second]
        assert not keys[first] & keys[second]
    assert set().union(*keys) == {q.key for q in domains.BUILDERS[domain]()}


def test_everything_drawn_is_disjoint_at_full_size() -> None:
    seen: Counter[str] = Counter()
    for domain in skills.DOMAINS:
        rows = skills.demonstrations(domain, skills.available(domain, "train"), 1)
        seen.update(row.prompt for row in rows)
        rows = skills.items(domain, skills.available(domain, "evaluate"), 2)
        seen.update(row.text for row in rows)
    seen.update(row.text for row in skills.instructions(skills.num_instructions(), 3))
    assert max(seen.values()) == 1


@pytest.mark.parametrize("domain", skills.DOMAINS)
def test_enough_of_each_part(domain: str) -> None:
    for part in skills.PARTS:
        assert skills.available(domain, part) >= 250


@pytest.mark.parametrize("domain", skills.DOMAINS)
def test_answers_are_short_and_phrasings_vary(domain: str) -> None:
    for question in domains.BUILDERS[domain]():
        assert 1 <= len(question.answer.split()) <= 6
        assert len(set(question.texts)) == len(question.texts) >= 3
        assert all("{" not in text for text in question.texts)


def test_sums_are_right() -> None:
    for row in skills.items("addition", 500, 9):
        numbers = [int(word) for word in row.text.replace("?", " ").replace(".", " ").split()
                   if word.isdigit()]  # fmt: skip
        assert sum(numbers) == int(row.answer or "")


def test_a_text_has_one_answer() -> None:
    answers: dict[str, str] = {}
    for builder in domains.BUILDERS.values():
        for question in builder():
            for text in question.texts:
                assert answers.setdefault(text, question.answer) == question.answer


def test_word_lists_have_no_repeats() -> None:
    lists = (lexicon.WORDS, lexicon.PRAISE + lexicon.BLAME, lexicon.SUBJECTS)
    for words in (*lists, [thing for kind in lexicon.KINDS.values() for thing in kind]):
        assert len(set(words)) == len(words)


def test_draws_depend_on_the_seed_and_grow_by_extension() -> None:
    short = skills.demonstrations("addition", 20, 4)
    assert skills.demonstrations("addition", 50, 4)[:20] == short
    assert skills.demonstrations("addition", 20, 5) != short


@pytest.mark.parametrize("count", [1, 6, 101])
def test_instructions_are_balanced(count: int) -> None:
    rows = skills.instructions(count, 0)
    shares = Counter(row.domain for row in rows)
    assert len({row.id for row in rows}) == count
    assert max(shares.values()) - min(shares.get(d, 0) for d in skills.DOMAINS) <= 1
    assert all(row.answer for row in rows)


def test_too_many_and_unknown_are_refused() -> None:
    most = skills.available("sentiment", "train")
    with pytest.raises(ConfigError, match=f"only {most} exist"):
        skills.demonstrations("sentiment", most + 1, 0)
    with pytest.raises(ConfigError, match=r"unknown skill 'maths'.*addition"):
        skills.items("maths", 1, 0)


def test_independent_of_the_hash_seed() -> None:
    code = "from phalanx import skills; print([r.id for r in skills.instructions(40, 1)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
