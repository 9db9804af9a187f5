"""The notebook is its page, and its outputs are what the cells print and show."""

from __future__ import annotations

import json

from tests.docs.notebook import NOTEBOOK, PAGE, PICTURE, executed, pictures, printed
from tests.docs.pages import assert_printed, blocks


def test_the_notebook_is_what_its_cells_give(tmp_path):
    made = executed(tmp_path)
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert [cell["source"] for cell in kept["cells"]] == [cell["source"] for cell in made], (
        "the page has changed: python -m tests.docs.notebook"
    )
    for then, now in zip(kept["cells"], made, strict=True):
        assert then.get("outputs") == now.get("outputs"), "".join(now["source"])
    texts, cell = printed(made), -1
    for block in blocks(PAGE):
        if block.kind == "text":
            assert_printed(block.text, texts[cell], f"{PAGE.name}, line {block.line}")
        else:
            cell += 1
    assert pictures(made) == [PICTURE.read_text(encoding="utf-8").rstrip("\n")]
    assert (tmp_path / "runs/notebook/report.html").stat().st_size > 1000
