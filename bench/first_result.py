"""The first result: does a collective run beat the best initial member, and the controls?

python -m bench.first_result OUT                    seeds 1 2 3, every arm, then the table
python -m bench.first_result OUT --seeds 1 --jobs 2 two runs at a time
python -m bench.first_result OUT --table            the table of whatever is finished
python -m bench.first_result OUT train.epochs=2     settings of every arm, as for phalanx run

For each seed ``phalanx recruit`` makes a pool once, and every arm is one ``phalanx run`` from it,
with the same instructions, seed and items. The same command goes on where it stopped, and skips
what is finished; with other settings or items it is refused there. The table (results.json,
results.md) comes from the ledgers alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.first_table import initial_best, write_table
from phalanx import skills
from phalanx.config import load, to_yaml
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.tasks.loading import ITEMS_PER_SKILL

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "experiments" / "first-result.yaml"
ITEMS_SEED = 7
"""Items are the same for all seeds, so that seeds can be told apart from items."""
COLLECTIVE, PLAIN_SFT, ONE_JUDGE = "collective", "plain-sft", "one-judge"
ARMS: dict[str, tuple[str, ...]] = {
    COLLECTIVE: (),
    "random-winners": ("train.label_noise=0.5",),
    "uniform-weights": ("without=[reputation]",),
    PLAIN_SFT: ("train.method=sft", "train.label_noise=0.5"),
    ONE_JUDGE: (),
}
"""What makes an arm. ``one-judge`` has a pool file of its own, made from what collective measured
at the start: it comes last."""
OPTIMISER = ("learning_rate", "schedule", "warmup", "epochs", "batch_size", "max_length")
"""What supervised fine-tuning has in common with the other arms: as many steps, the same rate."""


@dataclass(frozen=True)
class Place:
    """Where everything lies, and the settings given beside the configuration's."""

    out: Path
    config: Path
    overrides: tuple[str, ...]

    @property
    def items(self) -> Path:
        return self.out / "items.jsonl"

    def pool(self, seed: int) -> Path:
        return self.out / f"seed-{seed}" / "pool"

    def run(self, seed: int, arm: str) -> Path:
        return self.out / f"seed-{seed}" / arm


def main() -> int:
    given = _arguments()
    place = Place(given.out.resolve(), given.config.resolve(), tuple(given.settings))
    if not given.table:
        write_items(place)
        run_all(place, given.seeds, given.arms, given.jobs)
    recruit = load(place.config).pool.recruit
    taught = recruit.specialists if recruit else {}
    print(write_table(place.out, given.seeds, given.arms, taught))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.first_result",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder of all runs")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="as for phalanx run")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_intermixed_args()
    if COLLECTIVE not in given.arms:
        parser.error(f"the arms must have {COLLECTIVE}, which all others are compared with")
    return given


def write_items(place: Place) -> None:
    """Evaluation items of the configuration's first task, drawn once for all seeds.

    Raises RuntimeError where the folder's work was made with other items or settings; with more
    iterations it goes on.
    """
    config = load(place.config, place.overrides)
    (task,) = config.evaluate.tasks
    rows = [
        {"id": row.id, "instruction": row.text, "answer": row.answer, "domain": row.domain}
        for domain in task.domains or skills.DOMAINS
        for row in skills.items(domain, task.limit or ITEMS_PER_SKILL, ITEMS_SEED)
    ]
    _keep(place.items, "".join(json.dumps(row) + "\n" for row in rows))
    same = config.model_copy(update={"iterations": load(place.config).iterations})
    _keep(place.out / "settings.yaml", to_yaml(same))


def _keep(path: Path, text: str) -> None:
    """What all work of a folder is made from: written once, and the same ever after."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != text:
        raise RuntimeError(
            f"the work in {path.parent} was made with other {path.stem} ({path}); restore them, or "
            "choose another folder"
        )


def run_all(place: Place, seeds: Sequence[int], arms: Sequence[str], jobs: int) -> None:
    """Pools first, then the arms, seed by seed. Raises RuntimeError that names what failed."""
    failed = []
    with ThreadPoolExecutor(jobs) as workers:
        pools = {seed: workers.submit(make_pool, place, seed) for seed in seeds}
        found: dict[tuple[int, str], Future[None]] = {}
        for seed in seeds:
            for arm in (one for one in ARMS if one in arms):
                # What an arm waits for was submitted before it, so this never waits for ever.
                awaits = [pools[seed]]
                if arm == ONE_JUDGE:
                    awaits.append(found[seed, COLLECTIVE])
                found[seed, arm] = workers.submit(_after, awaits, run_arm, place, seed, arm)
        for (seed, arm), done in found.items():
            if error := done.exception():
                failed.append(f"seed {seed}, {arm}: {error}")
    if failed:
        raise RuntimeError("; ".join(failed))


def _after(
    awaits: Sequence[Future[None]],
    work: Callable[[Place, int, str], None],
    place: Place,
    seed: int,
    arm: str,
) -> None:
    for one in awaits:
        one.result()
    work(place, seed, arm)


def make_pool(place: Place, seed: int) -> None:
    if (place.pool(seed) / "pool.yaml").exists():
        return
    _phalanx(place, "recruit", seed, place.pool(seed), ())


def run_arm(place: Place, seed: int, arm: str) -> None:
    folder = place.run(seed, arm)
    if is_finished(folder, load(place.config, place.overrides).iterations):
        return
    pool = place.pool(seed) / "pool.yaml"
    if arm == ONE_JUDGE:
        pool = one_judge_pool(place, seed)
    settings = [*ARMS[arm], *_same_optimiser(place)] if arm == PLAIN_SFT else ARMS[arm]
    tasks = f"evaluate.tasks=[{{name: skills, source: {json.dumps(str(place.items))}}}]"
    _phalanx(place, "run", seed, folder, (f"pool={pool}", "pool.recruit=null", tasks, *settings))


def _same_optimiser(place: Place) -> list[str]:
    train = load(place.config, place.overrides).train
    return [f"sft.{key}={getattr(train, key)}" for key in OPTIMISER]


def is_finished(folder: Path, iterations: int) -> bool:
    """Whether a run is, and with as many iterations: with more of them it goes on."""
    if not run_ledger_path(folder).exists():
        return False
    with Ledger(run_ledger_path(folder)) as ledger:
        length = int(ledger.get("num_iterations") or 0)
        return ledger.get("finished") is not None and length >= iterations


def one_judge_pool(place: Place, seed: int) -> Path:
    """The members without the role judge, and a frozen copy of the best one (by dev) as the judge.

    The copy has another name, so that it judges every duel, its original's too.
    """
    from ruamel.yaml import YAML

    yaml = YAML()
    pool = yaml.load(place.pool(seed) / "pool.yaml")
    best = initial_best(place.run(seed, COLLECTIVE))
    (original,) = [member for member in pool["members"] if member["name"] == best]
    judge = {**original, "name": "judge", "roles": ["judge"]}
    for member in pool["members"]:
        member["roles"] = ["contest", "learn"]
    pool["members"].append(judge)
    path = place.pool(seed) / f"{ONE_JUDGE}.yaml"
    yaml.dump(pool, path)
    return path


def _phalanx(place: Place, verb: str, seed: int, folder: Path, settings: Sequence[str]) -> None:
    """One command, its output in a file beside the folder. RuntimeError where it fails."""
    command = [
        sys.executable, "-m", "phalanx.cli", verb, str(place.config), f"seed={seed}",
        *place.overrides, *settings, "--out", str(folder), "--quiet",
    ]  # fmt: skip
    log = folder.with_name(f"{folder.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    print(" ".join(["phalanx", *command[3:]]), flush=True)
    began = time.monotonic()
    with log.open("a", encoding="utf-8") as stream:
        done = subprocess.run(command, stdout=stream, stderr=stream, check=False)
    if done.returncode:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-3:]
        raise RuntimeError(f"{verb} ended with {done.returncode}: {' '.join(last)} ({log})")
    print(f"  done in {time.monotonic() - began:.0f} s: {folder}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
