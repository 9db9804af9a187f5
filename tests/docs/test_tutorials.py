"""The three tutorials, every command of them, in the order in which they are read."""

from __future__ import annotations

import json
import shutil

import pytest

from phalanx.engines.scripted import ScriptedEngine
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Member
from tests.docs.pages import ROOT, assert_printed, run_page
from tests.server import TestServer

PAGES = ROOT / "docs" / "tutorials"


def test_own_adapters(tmp_path):
    shutil.copy(ROOT / "docs/examples/make_stand_ins.py", tmp_path)
    done = run_page(PAGES / "own-adapters.md", tmp_path)
    assert done.count("sh") == 7
    with Ledger(run_ledger_path(tmp_path / "runs/mine")) as ledger:
        assert {member.name: member.version for member in ledger.members()} == {
            "code": 1, "math": 1, "chat": 1,
        }  # fmt: skip
        assert ledger.count("pairs", "dropped = ''") == 8
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").open(encoding="utf-8")]
    assert len(rows) == 8
    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("# mine\n")


COUNCIL = r"""
sampling:
  - {when: '<<<response \w+>>>\nShort', reply: '{"score": 4}'}
  - {when: '<<<response \w+>>>\n', reply: ['{"score": 7}', '{"score": 8}']}
  - {when: ., member: small-one, reply: Short answers of a few words.}
  - {when: ., reply: [Some more words than the other has., Even more words than the other.]}
"""


def test_endpoints(tmp_path):
    names = ("small-one", "small-two", "big-one", "big-two", "big-three")
    script = tmp_path / "council-script.yaml"
    script.write_text(COUNCIL, encoding="utf-8")
    models = {name: Member(name, f"script:{script}", engine="scripted") for name in names}
    with TestServer(ScriptedEngine(), models, key="a-key-from-your-provider") as server:
        port = f"127.0.0.1:{server.port}"
        done = run_page(PAGES / "endpoints.md", tmp_path, {"127.0.0.1:8000": port})
        asked = {entry.body.get("model") for entry in server.log if entry.body}
    assert set(names) <= asked
    assert done.count("sh") == 6
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").open(encoding="utf-8")]
    assert rows
    assert all(row["chosen"] != row["rejected"] for row in rows)
    written = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert written
    assert not [p for p in written if b"a-key-from-your-provider" in p.read_bytes()]


def test_a_papers_table(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    done = run_page(PAGES / "paper-table.md", tmp_path)
    assert done.count("sh") == 4
    compared = json.loads((tmp_path / "runs/compare/comparison.json").read_text("utf-8"))
    assert compared


@pytest.mark.parametrize(
    ("expected", "good"),
    [("one … three\n", True), ("two\none\n", False), ("  two   three", True), ("four", False)],
)
def test_shown_output_is_compared(expected, good):
    if good:
        assert_printed(expected, "one two\nthree", "here")
    else:
        with pytest.raises(AssertionError, match="is not what is printed"):
            assert_printed(expected, "one two\nthree", "here")
