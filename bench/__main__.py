"""Measure everything, print a table and write bench/results/latest.json.

python -m bench                    all items, each in a process of its own
python -m bench dpo generation     these items; the others stay as they were in the file
python -m bench --quick            tiny sizes on a tiny model: does everything still run?
python -m bench --device cuda --model random:qwen2.5-1.5b
python -m bench --page             write the table of docs/benchmarks.md from the file
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.setting import EMBEDDED, ROOT

ITEMS = {
    "iteration": "bench.iteration",
    "judging": "bench.judging",
    "dpo": "bench.dpo",
    "generation": "bench.generation",
    "memory": "bench.memory",
    "bookkeeping": "bench.books",
    "ray": "bench.cluster",
}
ON_GPU = ("iteration", "judging", "dpo", "generation", "memory")
RESULTS = ROOT / "bench" / "results" / "latest.json"
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> int:
    given = _arguments()
    if given.page:
        from bench.page import write_page

        write_page(json.loads(given.out.read_text(encoding="utf-8")), PAGE)
        return 0
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that sleep while they wait, as a run of Phalanx has them; both sides alike.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if given.child:
        return _measure_here(given)
    return _measure_all(given)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("items", nargs="*", metavar="ITEM", help=", ".join(ITEMS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, tiny model")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--model", help=f"default {EMBEDDED}; random:qwen2.5-1.5b; tiny; a folder")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file with the results")
    parser.add_argument("--page", action="store_true", help="write the table in the docs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = [item for item in given.items if item not in ITEMS]
    if unknown:
        parser.error(f"unknown item {', '.join(unknown)}; known: {', '.join(ITEMS)}")
    given.model = given.model or ("tiny" if given.quick else EMBEDDED)
    return given


def _measure_all(given: argparse.Namespace) -> int:
    from bench.measuring import machine
    from bench.page import table

    known = ON_GPU if given.device.startswith("cuda") else tuple(ITEMS)
    wanted = [item for item in known if item in given.items or not given.items]
    found: dict[str, list[dict[str, Any]]] = {}
    if given.items and given.out.exists():
        for record in json.loads(given.out.read_text(encoding="utf-8"))["items"]:
            found.setdefault(record["item"], []).append(record)
    about = machine(given.device)
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        for item in wanted:
            found[item] = _in_a_process(item, given, Path(folder))
            for line in table(found[item]).splitlines()[2:]:
                print(line, flush=True)
            about["load_after"] = os.getloadavg()[0]
            everything = [record for name in ITEMS for record in found.get(name, [])]
            about |= {"device": given.device, "model": given.model, "quick": given.quick}
            about["date"] = time.strftime("%Y-%m-%d")
            given.out.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"machine": about, "items": everything}, indent=1)
            given.out.write_text(text + "\n", encoding="utf-8")
    print("\n" + table(everything))
    failed = [record["name"] for item in wanted for record in found[item] if "error" in record]
    return 1 if failed else 0


def _in_a_process(item: str, given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The item's records; where its process fails, one that says so."""
    print(f"{item} ...", file=sys.stderr, flush=True)
    out = folder / f"{item}.json"
    command = [sys.executable, "-m", "bench", item, "--device", given.device]
    command += ["--model", given.model, "--out", str(out), "--child", str(folder)]
    command += ["--quick"] if given.quick else []
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 0 and out.exists():
        records = json.loads(out.read_text(encoding="utf-8"))
    else:
        print(done.stderr, file=sys.stderr, flush=True)
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        records = [{"name": f"{item}: failed", "error": last, "met": False, "note": last}]
    for record in records:
        record |= {"item": item, "item_seconds": round(time.monotonic() - began, 1)}
    return records


def _measure_here(given: argparse.Namespace) -> int:
    from bench.setting import Setting, make_model

    folder = Path(given.child)
    (item,) = given.items
    setting = Setting(_base(given.model, folder, make_model), given.device, given.quick, folder)
    items = importlib.import_module(ITEMS[item]).run(setting)
    given.out.write_text(json.dumps([item.record() for item in items]), encoding="utf-8")
    return 0


def _base(name: str, folder: Path, make: Any) -> Path:
    """Made once for all items of a run."""
    note = folder / "base.txt"
    if not note.exists():
        note.write_text(str(make(name, folder)), encoding="utf-8")
    return Path(note.read_text(encoding="utf-8"))


if __name__ == "__main__":
    raise SystemExit(main())
