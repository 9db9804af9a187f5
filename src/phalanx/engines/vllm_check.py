"""Whether a server that somebody else started serves the base that its members are of."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from phalanx.engines.vllm_server import Server
from phalanx.errors import EngineError
from phalanx.types import Member
from phalanx.weights import Weights, resolve_model

PROBE = 'Rate it, 2026: naïve café — 你好, мир! {"score": 10}\n\n\tdef unbelievably(x_1):  return'
"""Scripts, digits, spaces and code: what vocabularies cut differently."""


def check_base(server: Server, member: Member, texts: Weights) -> None:
    """Compare the name and the tokens of the server's base with the member's.

    Raises EngineError where the token ids differ. Equal ids under another name are no proof, since
    models of one family share a vocabulary; then, and where the server tells neither, a warning
    is given.
    """
    source = resolve_model(member.base)
    if _is_same(server.root, source):
        return
    told = (
        f"the vLLM server at {server.url} (vllm.url) serves {server.root or 'a base without name'}"
    )
    ours = list(texts.tokenizer(member)(PROBE, add_special_tokens=False)["input_ids"])
    body = {"model": server.base_name, "prompt": PROBE, "add_special_tokens": False}
    status, said = server.post("/tokenize", body)
    theirs = said.get("tokens") if status == 200 and isinstance(said, dict) else None
    if theirs is not None and theirs != ours:
        raise EngineError(
            f"{told}, whose token ids are not those of {member.base}, the base of {member.name}: "
            f"{theirs[:8]} and {ours[:8]} for the same text; start it with {source}, or name its "
            "base in the pool"
        )
    if _name(server.root) == _name(source):
        return
    if theirs is None:
        text = f"it has no /tokenize ({status}), so nothing tells whether that is {member.base}"
    else:
        text = f"it has the vocabulary of {member.base}; whether it is the same model is not told"
    warnings.warn(f"{told}; {text}: look to it", stacklevel=2)


def _is_same(root: str, source: Path | str) -> bool:
    if root == str(source):
        return True
    there, here = Path(root), Path(source)
    return bool(root) and there.is_dir() and here.is_dir() and there.resolve() == here.resolve()


def _name(source: Any) -> str:
    """The last part of a folder or a hub id; a folder of the hub's cache names the hub id."""
    parts = [part for part in Path(source).parts if part.startswith("models--")]
    return parts[-1].split("--")[-1].lower() if parts else Path(source).name.lower()
