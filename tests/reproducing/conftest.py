"""What is wished for of a paper, with members that follow a script."""

from __future__ import annotations

import pytest

from phalanx.reproducing import Wish
from tests.reproducing.rows import write_data

COUNT = 60
RULES = r"""
sampling:
  - {when: 'number \d*[02468]\)', member: ada, purpose: evaluate, reply: 'So: #### 7'}
  - {when: 'number [12457]*\)', member: bob, purpose: evaluate, reply: 'So: #### 7'}
  - {when: ., purpose: evaluate, reply: I do not know.}
  - {when: ., purpose: judge, reply: ['{"score": 3}', '{"score": 8}']}
  - {when: ., reply: [one answer, another answer]}
"""


@pytest.fixture
def wish(tmp_path) -> Wish:
    (tmp_path / "script.yaml").write_text(RULES, encoding="utf-8")
    members = "".join(
        f"  - {{name: {name}, engine: scripted, model: 'script:script.yaml'}}\n"
        for name in ("ada", "bob", "cora")
    )
    (tmp_path / "pool.yaml").write_text(f"members:\n{members}", encoding="utf-8")
    data = write_data(tmp_path / "data", count=COUNT)
    return Wish(
        "sparta", "main", ("gsm8k",), data, tmp_path / "pool.yaml",
        ("match.duels=4", "iterations=2", "train.method=none"), (1, 2),
    )  # fmt: skip
