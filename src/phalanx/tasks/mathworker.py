"""The process in which math-verify compares expressions; :mod:`phalanx.tasks.equivalence` runs it.

Reads one JSON object a line, ``{"gold": LaTeX, "answer": LaTeX}``, and writes one for each:
``{"equal": bool}``, or ``{"fault": text}`` where the comparison itself failed. Nothing here bounds
the time: whoever started the process ends it. Its memory is bounded.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys

MEMORY = 4 * 2**30
"""Bytes of address space: a power tower must not take the machine's memory."""


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is no reply
    logging.disable(logging.CRITICAL)  # what cannot be parsed is said by the reply
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    import math_verify

    def tell(reply: dict) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    def parsed(latex: str) -> list:
        return math_verify.parse(f"\\boxed{{{latex}}}", parsing_timeout=None)

    tell({"ready": True})
    for line in sys.stdin:
        pair = json.loads(line)
        try:
            gold, answer = parsed(pair["gold"]), parsed(pair["answer"])
            tell({"equal": bool(math_verify.verify(gold, answer, timeout_seconds=None))})
        except Exception as error:  # sympy raises whatever it likes, and the reply says it
            tell({"fault": type(error).__name__})


if __name__ == "__main__":
    main()
