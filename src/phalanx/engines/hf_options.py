"""The tree of option tokens: which rows to run, and how to read the options' probabilities.

A node is a sequence of tokens after the prompt. Where several things can follow (several next
tokens, or the end of an option and a next token) the node branches, and the model is asked there.
"1" and "10" under a tokenizer that splits digits: the root branches over the first digits, and the
node "1" branches between ending and "0".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from phalanx.chat import ChatFormat
from phalanx.errors import EngineError
from phalanx.types import Options

Path = tuple[int, ...]


@dataclass
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    option: str | None = None

    @property
    def branches(self) -> bool:
        return len(self.children) + (self.option is not None) > 1


class OptionTree:
    """The options of one request under one tokenizer.

    ``forced`` are the tokens of the prefix that all options share; ``rows`` the paths after it
    that have to be run: one for each innermost branching node. Prefix and option are tokenised
    jointly (:meth:`ChatFormat.option_ids`), so each option has the tokens that the model itself
    would write; where a token spans the border, ``forced`` ends before it.
    """

    def __init__(self, want: Options, chat: ChatFormat) -> None:
        if not want.options or len(set(want.options)) != len(want.options):
            raise EngineError(f"options must be given and differ, got {list(want.options)}")
        ids = {option: chat.option_ids(want.prefix, option) for option in want.options}
        shared = chat.option_ids(want.prefix, "")
        if not all(ids.values()):
            raise EngineError(f"an option without a token cannot be asked for: {want.options}")
        length = min(len(shared), *(len(tokens) - 1 for tokens in ids.values()))
        while any(tokens[:length] != shared[:length] for tokens in ids.values()):
            length -= 1
        self.forced: list[int] = shared[:length]
        self.options = want.options
        self.root = _Node()
        for option, tokens in ids.items():
            self._insert(option, tokens[length:])
        self.rows: list[Path] = []
        self._collect(self.root, ())
        self.width = len(self.forced) + max(len(row) for row in self.rows)

    def _insert(self, option: str, tokens: Sequence[int]) -> None:
        node = self.root
        for token in tokens:
            node = node.children.setdefault(token, _Node())
        if node.option is not None:
            raise EngineError(f"the tokenizer writes '{node.option}' and '{option}' alike")
        node.option = option

    def _collect(self, node: _Node, path: Path) -> bool:
        """Add a row for each innermost branching node; True if there is one at or below."""
        below = [self._collect(child, (*path, token)) for token, child in node.children.items()]
        if any(below):
            return True
        if node.branches or not path:
            self.rows.append(path)
            return True
        return False

    def asked(self, row: Path) -> dict[Path, list[int]]:
        """The branching nodes on a row (the root always) and the next tokens to read at each."""
        nodes: dict[Path, list[int]] = {}
        node = self.root
        for depth in range(len(row) + 1):
            if node.branches or depth == 0:
                nodes[row[:depth]] = list(node.children)
            if depth < len(row):
                node = node.children[row[depth]]
        return nodes

    def read(self, logprobs: Mapping[Path, Mapping[int, float]]) -> tuple[dict[str, float], float]:
        """Option -> probability (they sum to one) and the unrestricted probability of the options.

        ``logprobs`` has, for each branching node, the log-probability of each next token.
        Where an option ends at a node that also continues, it gets what the continuations leave.
        """
        if any(math.isnan(v) for node in logprobs.values() for v in node.values()):
            raise EngineError("the model's logits are not numbers; check its weights")
        found: dict[str, float] = {}
        self._walk(self.root, (), 1.0, logprobs, found)
        total = math.fsum(found.values())
        mass = math.fsum(math.exp(value) for value in logprobs[()].values())
        return {option: found[option] / total for option in self.options}, min(mass, 1.0)

    def _walk(
        self,
        node: _Node,
        path: Path,
        reached: float,
        logprobs: Mapping[Path, Mapping[int, float]],
        found: dict[str, float],
    ) -> None:
        shares = dict.fromkeys(node.children, 1.0)
        if node.branches:
            shares = {token: math.exp(value) for token, value in logprobs[path].items()}
        if node.option is not None:
            going_on = min(math.fsum(shares.values()), 1.0)
            found[node.option] = reached * (1.0 - going_on)
        elif node.branches:
            largest = max(logprobs[path].values())
            shares = {t: math.exp(value - largest) for t, value in logprobs[path].items()}
            total = math.fsum(shares.values())
            shares = {token: share / total for token, share in shares.items()}
        for token, child in node.children.items():
            self._walk(child, (*path, token), reached * shares[token], logprobs, found)
