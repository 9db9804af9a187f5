from __future__ import annotations

import time

import pytest

from phalanx.tasks.expressions import read_expression
from phalanx.tasks.reading import read_stated_number
from phalanx.tasks.stated import read_blanks, read_choice, read_label

YES_NO = ("yes", "no", "neutral")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{A}. Wait, no: the answer is B.", "B"),
        (r"The answer is B. So \boxed{C}", "C"),
        ("The answer is B, so:\n**C**", "C"),
        ("**Answer:** C", "C"),
        ("Answer:\n\n(D)", "D"),
        ("The correct answer to this question is B.", "B"),
        ("The answer is b.", "B"),
        ("the answer is (b) fever", "B"),
        ("I would go with option C.", "C"),
        ("The answer is B, not A.", "B"),
        ("There is no doubt that the answer is D", "D"),
        ("This is not gout, so the answer is B", "B"),
        ("The answer is B.\n\n- **A**: wrong, no pain\n- **C**: wrong, no fever", "B"),
        ("The answer is B, A is wrong.", "B"),
        ("Ａｎｓｗｅｒ： Ｂ", "B"),
        ("Ⓑ", "B"),
        (r"\boxed{\text{B) fever}}", "B"),
        ("**B) fever**", "B"),
        ("Option C", "C"),
        ("The answer is B. If she were older, the answer would be C.", "B"),
        ("B is correct. A is not the answer.", "B"),
        # no statement, or several at once
        ("The answer is A or B.", ""),
        ("The answer is A? No, it cannot be.", ""),
        ("Is the answer A? The answer is B.", "B"),
        ("It is false that the answer is A.", ""),
        ("The answer is 𝐁.", "B"),
        ("Answer: A, C", ""),
        ("Answer: A/B", ""),
        (r"\boxed{A, C}", ""),
        ("A and B are both correct.", ""),
        ("Neither A nor B is correct.", ""),
        ("I do not think B is correct", ""),
        ("The answer isn't A", ""),
        ("The wrong answer is A", ""),
        ("The answer A is wrong.", ""),
        ("Do not choose B.", ""),
        ("The answer is A patient with fever", ""),
        ("A patient comes in. A is the first letter.", ""),
        ("The answer is I think unclear", ""),
        (r"\boxed{A", ""),
        ("Answer: E", ""),
        ("Answer: В", ""),  # a Cyrillic letter
    ],
)  # fmt: skip
def test_the_last_statement_wins(text: str, letter: str) -> None:
    assert read_choice(text, "ABCD") == letter


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Answer: yes", "yes"),
        ("The answer is **No**.", "no"),
        ("No, it is rude there.", "no"),
        ("No. On second thoughts, the answer is yes.", "yes"),
        ("He does not bow.\nNeutral.", "neutral"),
        (r"\boxed{\text{neutral}}", "neutral"),
        ("Answer: yes. No one minds.", "yes"),
        ("No one would mind.", ""),
        ("Answer: yes or no", ""),
        ("The answer is not yes", ""),
        ("Yes and no", ""),
        ("There is no rule.", ""),
    ],
)
def test_labels(text: str, label: str) -> None:
    assert read_label(text, YES_NO) == label


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (r"7 + 5, so \boxed{12}. It costs $4", "12"),
        ("#### 1,234", "1234"),
        ("#### 42 apples, 3 left", "42"),
        (r"\boxed{3}, no: the answer is 4.", "4"),
        ("The answer is 12. That took 3 steps.", "12"),
        ("The answer is 12 because 3 of 4 remain", "12"),
        ("answer: 5 + 3 = 8", "8"),
        ("The answer is not 12 but 15.", "15"),
        ("**Answer:** $18", "18"),
        ("The answer is 12cm.", "12"),
        (r"\boxed{12 \text{ m}^2}", "12"),
        (r"\boxed{30^\circ}", "30"),
        (r"\boxed{1{,}500\%}", "1500"),
        (r"the answer is \boxed{٤٢}", "42"),
        ("Answer: ４２", "42"),
        ("The answer is ١٢٫٥", "12.5"),
        ("The answer is ١٬٥٠٠", "1500"),
        ("The answer is ½", "0.5"),
        ("The answer is 3½ cups", "3.5"),
        ("#### 2 ⅓", "7/3"),
        ("The answer is 5² = 25", "25"),
        ("The answer is 5²", ""),
        ("The answer is 2^{10}.", ""),
        ("The answer is 12 m²", "12"),
        ("The answer is 12 m^2 and so on", "12"),
        (r"The answer is $12 \text{ m}^{2}$", "12"),
        (r"\boxed{2 \times 10^{3}}", "2000"),
        (r"\boxed{1.5 \cdot 10^{-2}}", "0.015"),
        (r"\boxed{2 \times 10^3}", "2000"),
        (r"\boxed{12 m^2}", "12"),
        ("#### 3 x 10^2m", "300"),
        ("#### 3×10⁻²", "0.03"),
        ("The answer is 10^6.", "1000000"),
        ("The answer is 25, which is 5^2.", "25"),
        (r"\boxed{3(2^4)}", ""),
        (r"\boxed{(2 + 3)^2}", ""),
        ("#### 12 m^2-3", "12"),
        ("The answer is (2 + 3)²", ""),
        ("The answer is 2^3 + 1", ""),
        ("#### 12^2 + 5", ""),
        (r"\boxed{2^3 \times 10^2}", ""),
        (r"\boxed{110^{2}}", ""),
        ("The answer is 30^\\circ.", "30"),
        ("#### 12 #### 13", "13"),
        ("#### 42 ####", "42"),
        ("##### 42", "42"),
        ("so\n72", "72"),
        ("$72.50", "72.5"),
        ("It is 72 apples", ""),
        ("First 3, then 4, so 7", ""),
        ("The answer is 12 or 15", ""),
        (r"\boxed{12 \text{ or } 15}", ""),
        (r"\boxed{12", ""),
        ("The answer is not known", ""),
        ("5 m²", ""),
    ],
)
def test_a_number_has_to_be_stated(text: str, number: str) -> None:
    assert read_stated_number(text) == number


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (r"so \boxed{\frac{1}{\sqrt{2}}} holds", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{1}, no, \boxed{2}", "2"),
        (r"The answer is $x^2$. I used 3.", "x^2"),
        ("#### 3/4", "3/4"),
        ("#### 12 #### 13", "13"),
        ("#### 42 ####", "42"),
        ("##### 42", "42"),
        (r"$\frac12$", r"\frac12"),
        ("Answer: x² + ４", "x^{2} + 4"),
        (r"\box{150} is what I get\nthen", r""),
        (r"\boxed{15", ""),
        ("First.\nThen 7.", ""),
        (r"\boxed{" + "9" * 5000 + "}", ""),
    ],
)
def test_expressions(text: str, expression: str) -> None:
    assert read_expression(text.replace("\\nthen", "\nthen")) == expression


def test_every_blank_needs_a_letter() -> None:
    blanks = ("blank 1", "blank 2")
    assert read_blanks("blank 1: A; no, blank 1: B, **Blank 2**: (C)", blanks) == (
        "blank 1: B; blank 2: C"
    )
    assert read_blanks("blank 1: A", blanks) == ""


@pytest.mark.parametrize(
    "text",
    [
        "answer" + " " * 20000, "answer " + "*_" * 10000, "answer is A or " * 2000, "((((" * 8000,
        "\\boxed{" * 5000, "if the answer would be B, " * 1500, "answer: 1 " * 3000,
        "answer is 1=2 " * 3000, "1," * 20000, "answer: 1" + " " * 20000,
        "answer is " + "1^(" * 10000, "2 x 10^ " * 5000,
        "# " * 20000, "1" + " " * 20000 + "#x", "1 #" * 10000, "#" * 20000 + "x",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_noise_is_read_in_time(text: str) -> None:
    start = time.process_time()
    read_choice(text), read_label(text, YES_NO), read_stated_number(text), read_expression(text)
    assert time.process_time() - start < 5
