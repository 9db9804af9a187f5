"""``python -m tests.server serve MODEL ...``: stands in for ``vllm serve`` with the hf engine.

Flags of vLLM that mean nothing here are accepted. As in vLLM, the adapter endpoints are there with
VLLM_ALLOW_RUNTIME_LORA_UPDATING and --enable-lora, and those of sleep mode with
VLLM_SERVER_DEV_MODE and --enable-sleep-mode. ``TEST_SERVER_FAIL`` makes the start fail with that
text, ``TEST_SERVER_NO_SLEEP`` fails where sleep mode is asked for, ``TEST_SERVER_SLOW`` delays it
by so many seconds, and ``TEST_SERVER_LOG`` names a file that gets one JSON line for each request.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from phalanx.engines.hf import HFEngine
from phalanx.types import Member
from phalanx.weights import Weights
from tests.server.http import Entry, TestServer
from tests.server.texts import Abilities


class LoggingServer(TestServer):
    """Writes each request to the file TEST_SERVER_LOG as it arrives."""

    def note(self, entry: Entry) -> None:
        super().note(entry)
        path = os.environ.get("TEST_SERVER_LOG")
        if path and entry.path != "/health":
            row = {"at": time.time(), "path": entry.path, "body": entry.body, "pid": os.getpid()}
            with self._lock, open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.server", allow_abbrev=False)
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+", default=[])
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--enable-sleep-mode", action="store_true")
    parser.add_argument("--max-lora-rank", type=int, default=16)
    parser.add_argument("--max-loras", type=int, default=1)
    parser.add_argument("--max-cpu-loras", type=int, default=0)
    parser.add_argument("--max-logprobs", type=int, default=20)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--no-token-ids", action="store_true", help="as a vLLM of before 2026")
    known, others = parser.parse_known_args()
    print(f"other arguments: {others}", flush=True)
    return known


def main() -> None:
    asked = _arguments()
    if text := os.environ.get("TEST_SERVER_FAIL"):
        print("loading ...", flush=True)
        sys.exit(text)
    if asked.enable_sleep_mode and "TEST_SERVER_NO_SLEEP" in os.environ:
        sys.exit("ValueError: Sleep mode is not supported on current platform.")
    time.sleep(float(os.environ.get("TEST_SERVER_SLOW", "0")))
    member: dict[str, Any] = {"base": asked.model, "dtype": asked.dtype}
    names = asked.served_model_name or [asked.model]
    developing = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
    updating = os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "") in ("1", "True", "true")
    server = LoggingServer(
        HFEngine(Weights(device="cpu")),
        {name: Member(name, **member) for name in names},
        can=Abilities(
            max_logprobs=asked.max_logprobs,
            lora=asked.enable_lora and updating,
            sleep=asked.enable_sleep_mode and developing,
            token_ids=not asked.no_token_ids,
        ),
        host=asked.host,
        port=asked.port,
        max_lora_rank=asked.max_lora_rank,
        max_loras=max(asked.max_loras, asked.max_cpu_loras),
    )
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with server:
        print(f"listening on {server.url}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
