"""Training data in the forms that other trainers document, with the settings that point to it.

One folder for each export: the rows, and a small file with the part of the tool's own configuration
(or command) that names them. A form was written after the tool's own loader; ``docs/export.md``
says which version. No tool needs to be installed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.errors import ConfigError, LedgerError
from phalanx.export import TOOLS, TRAINING, WRITERS, some_rows
from phalanx.ledger import Ledger
from phalanx.placing import placed

Row = dict[str, Any]
Turns = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written to ``folder``: its ``files``, how many rows, and how many were left out
    because their answer hit the token limit (these tools would teach its end)."""

    folder: Path
    files: tuple[str, ...]
    count: int
    left_out: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Form:
    """How a tool wants one kind. ``settings`` gets the path of the rows and gives file -> text;
    ``no_signs`` are those that the tool would take for something else in that path."""

    convert: Callable[[Row], Row]
    settings: Callable[[Path], dict[str, str]]
    columns: dict[str, Any] = field(default_factory=dict)
    ending: str = "jsonl"
    note: str = ""
    no_signs: str = ""


def export_for(
    ledger: Ledger,
    what: str,
    tool: str,
    *,
    out: Path | str,
    iteration: int | None = None,
    builder: str | None = None,
    system_of: str | None = None,
) -> Exported:
    """Write ``preferences``, ``demonstrations`` or ``prompts`` to the folder ``out`` for ``tool``.

    ``system_of`` opens every conversation with the system prompt of that member, as it reads and
    learns them; without it rows have none. Rows whose chosen response or completion is cut off at
    the token limit are left out and counted. Raises ConfigError for a kind that the tool does not
    take, an unknown member, a folder that holds something else or whose name the tool would
    misread; LedgerError where there is nothing to write.
    """
    form = _form(tool, what)
    out = Path(out).absolute()  # whoever reads the settings may be in another folder
    ledger.refuse_target(out)
    if found := set(form.no_signs) & set(str(out)):
        raise ConfigError(
            f"{tool} cannot read a file whose place has {' or '.join(sorted(found))} in its name: "
            f"{out}; choose another folder"
        )
    system = _system(ledger, system_of)
    rows = some_rows(ledger, what, conversational=True, iteration=iteration, builder=builder)
    kept = _Kept(rows, system)
    name = f"{what}.{form.ending}"
    settings = form.settings(out / name)
    _check_folder(out, {name, *settings})
    with placed(out) as place:
        place.mkdir()
        numbered = enumerate(kept)
        made = (form.convert({**row, "number": number}) for number, row in numbered)
        WRITERS[form.ending](place / name, made, form.columns)
        if not kept.count:
            raise LedgerError(
                f"nothing to export: the answers of all {kept.left_out} rows hit the token limit, "
                f"and {tool} would teach their end; raise answer.max_new_tokens"
            )
        for file, text in settings.items():
            (place / file).write_text(text, encoding="utf-8")
    return Exported(out, (name, *settings), kept.count, kept.left_out, form.note)


class _Kept:
    """The rows that a tool gets, one by one, and the count of both sorts."""

    def __init__(self, rows: Iterator[Row], system: str) -> None:
        self._rows, self._system = rows, system
        self.count = self.left_out = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if row.get("truncated") or row.get("chosen_truncated"):
                self.left_out += 1
                continue
            self.count += 1
            if self._system:
                opening = {"role": "system", "content": self._system}
                row = {**row, "prompt": [opening, *row["prompt"]]}
            yield row


def _form(tool: str, what: str) -> _Form:
    if tool not in _FORMS:
        raise ConfigError(f"unknown format {tool!r}; known: {', '.join(TOOLS)}")
    if what not in TRAINING:
        raise ConfigError(f"{tool} takes {', '.join(TRAINING)}, not {what}")
    forms = _FORMS[tool]
    if what not in forms:
        why = f"; {_WHY_NOT[tool]}" if tool in _WHY_NOT else ""
        raise ConfigError(f"{tool} takes {', '.join(forms)}, not {what}{why}")
    return forms[what]


def _system(ledger: Ledger, name: str | None) -> str:
    if name is None:
        return ""
    prompts = {member.name: member.system for member in ledger.members()}
    if name not in prompts:
        raise ConfigError(f"--system-of {name}: no such member; there are {', '.join(prompts)}")
    if not prompts[name]:
        raise ConfigError(f"--system-of {name}: this member has no system prompt; leave it out")
    return prompts[name]


def _check_folder(out: Path, names: set[str]) -> None:
    """An export replaces only one of its own kind."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; a folder is written for this tool")
    others = sorted({path.name for path in out.iterdir()} - names) if out.is_dir() else []
    if others:
        raise ConfigError(f"{out} holds something else, such as {others[0]}; choose another folder")


def _only(*names: str) -> Callable[[Row], Row]:
    return lambda row: {name: row[name] for name in names}


# Axolotl -------------------------------------------------------------------------------------


def _axolotl_demonstration(row: Row) -> Row:
    """Every turn says whether it is learned: the last one alone."""
    before = [{**turn, "train": False} for turn in row["prompt"]]
    return {"messages": [*before, *({**turn, "train": True} for turn in row["completion"])]}


def _axolotl(head: Sequence[str], kind: str, *fields: str) -> Callable[[Path], dict[str, str]]:
    def settings(path: Path) -> dict[str, str]:
        lines = [
            "# For Axolotl: merge into your configuration (base_model, adapter, optimizer ...).",
            *head,
            "chat_template: tokenizer_default",
            "datasets:",
            f"  - path: {json.dumps(path.as_posix(), ensure_ascii=False)}",
            "    ds_type: json",
            "    split: train",
            f"    type: {kind}",
            *(f"    {line}" for line in fields),
        ]
        return {"axolotl.yaml": "\n".join(lines) + "\n"}

    return settings


# LLaMA-Factory -------------------------------------------------------------------------------

_FROM = {"user": "human", "assistant": "gpt", "system": "system"}


def _sharegpt(turns: Turns) -> Turns:
    return [{"from": _FROM[turn["role"]], "value": turn["content"]} for turn in turns]


def _factory_pair(row: Row) -> Row:
    (chosen,), (rejected,) = _sharegpt(row["chosen"]), _sharegpt(row["rejected"])
    return {"conversations": _sharegpt(row["prompt"]), "chosen": chosen, "rejected": rejected}


def _factory_demonstration(row: Row) -> Row:
    return {"conversations": _sharegpt([*row["prompt"], *row["completion"]])}


def _factory_prompt(row: Row) -> Row:
    """Its form without an answer: the last user turn, and the exchanges before it as pairs."""
    turns = list(row["prompt"])
    system = turns.pop(0)["content"] if turns[0]["role"] == "system" else ""
    texts = [turn["content"] for turn in turns]
    earlier = [list(pair) for pair in zip(texts[:-1:2], texts[1:-1:2], strict=True)]
    return {"instruction": texts[-1], "system": system, "history": earlier}


def _factory(stage: str, entry: dict[str, Any], *more: str) -> Callable[[Path], dict[str, str]]:
    def settings(path: Path) -> dict[str, str]:
        name = f"phalanx_{path.stem}"
        known = {name: {"file_name": path.name, **entry}}
        lines = [
            "# For LLaMA-Factory: merge into your configuration (model, template ...).",
            f"stage: {stage}",
            f"dataset_dir: {json.dumps(path.parent.as_posix(), ensure_ascii=False)}",
            f"dataset: {name}",
            *more,
        ]
        return {
            "dataset_info.json": json.dumps(known, indent=2) + "\n",
            "llamafactory.yaml": "\n".join(lines) + "\n",
        }

    return settings


_CHATS = {"formatting": "sharegpt", "columns": {"messages": "conversations"}}
_PAIRS = {
    "formatting": "sharegpt",
    "ranking": True,
    "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
}
_PROMPTS = {"columns": {"prompt": "instruction", "system": "system", "history": "history"}}


# OpenRLHF ------------------------------------------------------------------------------------


def _openrlhf_prompt(row: Row) -> Row:
    return {"prompt": row["prompt"], "label": row["answer"] or ""}


def _command(
    file: str, start: str, dataset: Callable[[str], str], *keys: str
) -> Callable[[Path], dict[str, str]]:
    def settings(path: Path) -> dict[str, str]:
        words = [start, dataset(path.as_posix()), *keys, '"$@"']
        first = "#!/bin/sh\n# Further arguments (model, batch sizes, output ...) come behind it.\n"
        return {file: first + " \\\n  ".join(words) + "\n"}

    return settings


def _openrlhf(module: str, dataset: str, *keys: str) -> Callable[[Path], dict[str, str]]:
    start = f"deepspeed --module openrlhf.cli.{module}"
    if module == "train_ppo_ray":
        start = f"python3 -m openrlhf.cli.{module}"
    flag = f"--data.{dataset}"
    return _command(
        "openrlhf.sh", start, lambda path: f"{flag} {shlex.quote(path)}", *keys,
        "--data.apply_chat_template",
    )  # fmt: skip


_LISTS = ",@"  # it reads a,b@c as the files a and b, the second with a folder c

# verl ----------------------------------------------------------------------------------------


def _verl_prompt(row: Row) -> Row:
    return {
        "data_source": "phalanx",
        "prompt": row["prompt"],
        "ability": row["domain"],
        "reward_model": {"style": "rule", "ground_truth": row["answer"] or ""},
        "extra_info": {
            "split": "train",
            "index": row["number"],
            "instruction_id": row["instruction_id"],
        },
    }


def _verl_demonstration(row: Row) -> Row:
    return {"messages": [*row["prompt"], *row["completion"]]}


def _verl(start: str, *keys: str) -> Callable[[Path], dict[str, str]]:
    """Its arguments are Hydra's, which has marks of its own for spaces, commas and the like."""

    def dataset(path: str) -> str:
        quoted = re.sub(r"(\\*)'", r"\1\1\\'", path)
        return shlex.quote(f"data.train_files='{quoted}'")

    return _command("verl.sh", start, dataset, *keys)


_VERL_PROMPT = {
    "data_source": "string",
    "prompt": "messages",
    "ability": "string",
    "reward_model": {"style": "string", "ground_truth": "string"},
    "extra_info": {"split": "string", "index": "int64", "instruction_id": "string"},
}
_TORCHRUN = "torchrun --standalone --nproc_per_node=${GPUS:-1}"
_ROLES = (
    "field_messages: messages",
    "message_property_mappings: {role: role, content: content}",
)

_FORMS: dict[str, dict[str, _Form]] = {
    "axolotl": {
        # Not chat_template.default: it looks an answer up in the filled template, and finds a short
        # one ("A", "2") in the template's own words. TRL, below, takes the turns as they are.
        "preferences": _Form(
            _only("prompt", "chosen", "rejected"),
            _axolotl(
                ("rl: dpo", "# TRL fills the template; what is longer than sequence_len it cuts.",
                 "skip_prepare_dataset: true"),
                "passthrough.default",
            ),
        ),
        "demonstrations": _Form(
            _axolotl_demonstration,
            _axolotl(
                (), "chat_template", *_ROLES, "roles_to_train: []",
                "message_field_training: train", "train_on_eos: turn",
            ),
        ),
    },
    "llama-factory": {
        "preferences": _Form(_factory_pair, _factory("dpo", _PAIRS)),
        # Earlier answers of a conversation are read, not learned.
        "demonstrations": _Form(
            _factory_demonstration, _factory("sft", _CHATS, "mask_history: true")
        ),
        # Parquet: readers of JSON lines take the type of `history` from rows that have none.
        "prompts": _Form(
            _factory_prompt,
            _factory("ppo", _PROMPTS),
            {"instruction": "string", "system": "string", "history": "exchanges"},
            ending="parquet",
        ),
    },
    "openrlhf": {
        "preferences": _Form(
            _only("prompt", "chosen", "rejected"),
            _openrlhf(
                "train_dpo", "dataset", "--data.prompt_key prompt", "--data.chosen_key chosen",
                "--data.rejected_key rejected",
            ),
            no_signs=_LISTS,
        ),
        "demonstrations": _Form(
            _only("prompt", "completion"),
            _openrlhf(
                "train_sft", "dataset", "--data.input_key prompt", "--data.output_key completion"
            ),
            no_signs=_LISTS,
        ),
        "prompts": _Form(
            _openrlhf_prompt,
            _openrlhf(
                "train_ppo_ray", "prompt_dataset", "--data.input_key prompt",
                "--data.label_key label",
            ),
            no_signs=_LISTS,
        ),
    },
    "verl": {
        "demonstrations": _Form(
            _verl_demonstration,
            _verl(f"{_TORCHRUN} -m verl.trainer.sft_trainer", "data.messages_key=messages"),
            {"messages": "messages"},
            ending="parquet",
            note="verl learns every assistant turn of a conversation, earlier ones too",
        ),
        "prompts": _Form(
            _verl_prompt,
            _verl("python3 -m verl.trainer.main_ppo", "data.prompt_key=prompt"),
            _VERL_PROMPT,
            ending="parquet",
            note="verl knows no reward for data_source phalanx: give it "
            "custom_reward_function.path, or a reward model",
        ),
    },
}  # fmt: skip
_WHY_NOT = {
    "axolotl": "its GRPO reads data through code of your own",
    "verl": "it has no trainer for pairs; the other formats have",
}
