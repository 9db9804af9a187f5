from __future__ import annotations

import importlib.util
import subprocess
import threading

import pytest

from phalanx.config.schema import TaskSettings
from phalanx.errors import MissingPackage
from phalanx.tasks import Score, TaskItem, equivalence, load_task, score

needs = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed"
)


def item(answer: str) -> TaskItem:
    return TaskItem("i", "?", answer, "d", "t", "math")


@needs
@pytest.mark.parametrize(
    ("gold", "text", "right"),
    [
        (r"\frac{1}{2}", r"so \boxed{0.5}", True),
        (r"\frac{1}{2}", r"so \boxed{\dfrac12}", True),
        ("1/3", r"\boxed{0.333}", False),
        ("x^2+2x+1", r"\boxed{(x+1)^2}", True),
        ("5", r"\boxed{x = 5}", True),
        ("5", r"\boxed{5 \text{ cm}^2}", True),
        ("5", r"\boxed{5}. No, the answer is $6$.", False),
        ("(1,2)", r"\boxed{(2,1)}", False),
        ("3", r"\boxed{3 \text{ or } 5}", False),
        (r"\{1,2\}", r"\boxed{\{2,1\}}", True),
        ("-5", r"\boxed{5}", False),
        (r"\text{Ann}", r"\boxed{Ann}", True),
        (r"\text{Ann}", r"\boxed{Bob}", False),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\boxed{\binom{1}{2}}", False),
        ("42", r"\boxed{４２}", True),
    ],
)  # fmt: skip
def test_equivalence(gold: str, text: str, right: bool) -> None:
    assert score(text, item(gold)) == Score(right, True)


@needs
def test_time_is_bounded_and_the_next_comparison_works() -> None:
    assert equivalence.compare("6", "9^{9^{9^{9}}}", seconds=1.0) == "time limit"
    assert equivalence.compare("6", "2 \\cdot 3") == "equal"


@needs
def test_a_worker_that_died_is_replaced() -> None:
    assert equivalence.compare("6", "2 \\cdot 3") == "equal"
    equivalence._WORKERS[0].process.kill()
    assert equivalence.compare("6", "7 - 1") == "fault"
    assert equivalence.compare("6", "7 - 1") == "equal"


@needs
def test_threads_can_ask() -> None:
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = equivalence.compare(str(2 * number), f"{number}+{number}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(1, 9), "equal")


def test_a_text_without_an_answer_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **rest: pytest.fail("asked"))
    assert score("I do\nnot know", item("5")) == Score(False, False, "no expression")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'phalanx\[math\]'"):
        load_task(TaskSettings(name="t", source="none.jsonl", kind="math"), seed=0)
