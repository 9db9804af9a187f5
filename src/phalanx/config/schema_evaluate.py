"""The sections of tasks and evaluation; see :mod:`phalanx.config.schema`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from phalanx.config.base import Section, Share

TaskKind = Literal[
    "", "gsm8k", "math", "medqa", "mmlu", "mmlu_redux", "gpqa", "kcross", "normad_country",
    "normad_value", "normad_rot", "com2", "truthfulqa", "truthfulqa_mc1", "truthfulqa_mc2",
    "humaneval", "ifeval", "alpaca_eval", "arena_hard", "mt_bench", "open",
]  # fmt: skip

CONTESTS: tuple[TaskKind, ...] = ("alpaca_eval", "arena_hard", "mt_bench", "open")
"""Kinds whose answers are compared or rated by judges: they have no items that are right."""


class TaskSettings(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    """Short unique name in tables and reports."""
    source: str
    """`builtin:skills`, or a JSONL/CSV/Parquet file with instruction (or prompt), answer and
    (optionally) domain and choices."""
    kind: TaskKind = ""
    """The benchmark whose published columns the file has (or `id, prompt, choices, answer, meta`);
    empty: rows of one's own, compared by `match`. It says what is asked for, how an answer is read,
    and what a domain is: `truthfulqa_mc1` and `_mc2` are scored by the likelihood of each choice,
    `humaneval` by running the function in a confined process, `ifeval` by checking each
    instruction (strictly), the others by what is written."""
    split: str = ""
    """The split of a hub data set or folder; default: the benchmark's own, or `train`."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """What to do when a row cannot be used: refuse to start (all are listed), or skip and count.
    Kinds that compare always refuse."""
    match: Literal["exact", "number", "choice", "contains", "judged"] = "exact"
    """How a response is compared with the answer. `judged`: `evaluate.judges` say whether it means
    the same. `choice` shows the options of rows with `choices`. A `kind` has its own way; with
    gsm8k, `number` also takes the last number of a response that states no answer."""
    samples: int = Field(1, ge=1)
    """Responses to each item; more than one needs a temperature. The score is the share of them
    that are right as a whole (pass@1; the report has pass@k)."""
    temperature: float = Field(0.0, ge=0)
    """0 is greedy."""
    baseline: str = ""
    """Kinds that compare with somebody (`alpaca_eval`, `arena_hard`, `open`; `phalanx eval` only):
    a file of the baseline's outputs, or one of those who are measured. Default: the output in the
    row, or else whoever is named first."""
    difficulty: str = ""
    """`alpaca_eval`: a file of instruction difficulties, for the length-controlled win rate."""
    gamed: str = ""
    """`alpaca_eval`: a file of the gamed baselines, which regularise that rate."""
    limit: int | None = Field(None, ge=1)
    """Items of each domain."""
    total: int | None = Field(None, ge=1)
    """Items in all, drawn whatever their domains; `--limit` of `phalanx eval`."""
    domains: list[str] = []
    """Only items of these domains; default: all."""


class EvaluateSettings(Section):
    tasks: list[TaskSettings] = []
    """What every member is measured on, before, after each iteration, and at the end."""
    dev_share: Share = 0.3
    """Share of each task's items that chooses checkpoints; results are reported on the rest."""
    max_new_tokens: int = Field(256, ge=1)
    """Responses are greedy where the task has no temperature."""
    judges: list[str] = []
    """Members that say whether an answer means the same as the gold one (`com2`, `match: judged`)
    or which of two is better (`open`, `alpaca_eval`, ...); as they were at the start of a run.
    Nobody judges an answer of their own."""
    mixture: bool = False
    """Measure the mixture of `mixture` beside the members (method moaa: at the start, and after
    every generation)."""
    every: int = Field(1, ge=1)
    """Measure after every so many iterations; the last one always."""
    seed: int | None = Field(None, ge=0)
    """Draws the items where there are more than are wanted; default: the run's `seed`. Runs of
    several seeds meet the same items where it is set (`phalanx compare` sets it)."""

    def items_seed(self, run_seed: int) -> int:
        """What draws the items of a run with this seed."""
        return run_seed if self.seed is None else self.seed
