"""The commented configuration that ``phalanx init`` writes, from the schema's own texts."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from pydantic import BaseModel

from phalanx.config.loading import load, preset_names, preset_text
from phalanx.config.schema import Config
from phalanx.config.uses import uses
from phalanx.errors import ConfigError

_HEAD = """\
# A Phalanx configuration. Look at the plan with `phalanx check`, start with `phalanx run`.
# Everything not set here comes from the preset; docs/configuration.md explains every key.
preset: {preset}
seed: 0

pool:
  base: builtin:smollm2-135m      # or a folder, a .gguf file, or a hub id such as org/model
  members:                        # a duel needs three: its judge is not in it
    - name: ada
      # adapter: adapters/ada     # a LoRA folder (PEFT, safetensors), or hub:org/name
      system: Answer in one short sentence.
    - name: bob
      system: Think first, then answer.
    - name: cora
      system: Answer as a patient teacher.

instructions:
  source: builtin:skills          # your own: a JSONL, CSV or Parquet file, or hub:org/name

# Settings of the preset you may want to change. Remove the `# ` in front of a key and of its
# section to set it.
"""
_MIXTURE_HEAD = """\
# A Phalanx configuration. Look at the plan with `phalanx check`, start with `phalanx run`.
# Everything not set here comes from the preset; docs/configuration.md explains every key.
preset: {preset}
seed: 0

pool:
  base: builtin:smollm2-135m      # or a folder, a .gguf file, or a hub id such as org/model
  members:
    - name: ada                   # teachers: several different models, or endpoints
      roles: [contest, judge]     # without learn: a teacher stays as it is
      # adapter: adapters/ada     # a LoRA folder (PEFT, safetensors), or hub:org/name
      system: Answer in one short sentence.
    - name: bob
      roles: [contest, judge]
      system: Think first, then answer.
    - name: cora
      roles: [contest, judge]
      system: Answer as a patient teacher.
    - name: student               # what the mixture teaches

mixture:
  proposers: [ada, bob, cora]
  aggregator: ada                 # writes the last answer from the proposals

moaa:
  students:
    - name: student

instructions:
  source: builtin:skills          # your own: a JSONL, CSV or Parquet file, or hub:org/name

# Settings of the preset you may want to change; those of mixture and moaa go into their sections
# above. Remove the `# ` in front of a key and of its section to set it.
"""
_SECTIONS = ("match", "answer", "judge", "aggregate", "pairs", "train", "evaluate", "guard",
             "resources")  # fmt: skip
_MIXTURE_SECTIONS = ("reward", "judge", "pairs", "sft", "train", "evaluate", "guard",
                     "resources")  # fmt: skip


def starter(preset: str) -> str:
    """A complete file that ``phalanx check`` accepts; a preset with a pool of its own as it is.

    Raises ConfigError for an unknown preset.
    """
    if preset not in preset_names():
        raise ConfigError(f"preset {preset!r} is not known; known: {', '.join(preset_names())}")
    config = load(f"preset:{preset}")
    if config.pool.members or config.pool.recruit:
        return preset_text(preset)
    mixture = config.method == "moaa"
    lines = [(_MIXTURE_HEAD if mixture else _HEAD).format(preset=preset)]
    sections = _MIXTURE_SECTIONS if mixture else (config.method, *_SECTIONS)
    for name in ("iterations", *sections):
        if name in Config.model_fields and uses(config, name):
            lines += _commented(name, Config, getattr(config, name))
    return "\n".join(lines)


def _commented(name: str, owner: type[BaseModel], value: Any) -> list[str]:
    if not isinstance(value, BaseModel):
        return [*_help(owner, name, ""), f"# {name}: {json.dumps(value)}", ""]
    lines = [f"# {name}:"]
    for key, setting in value:
        if not isinstance(setting, BaseModel):
            lines += _help(type(value), key, "  ")
            plain = value.model_dump(mode="json")[key]
            lines.append(f"#   {key}: {json.dumps(plain)}")
    return [*lines, ""]


def _help(owner: type[BaseModel], key: str, indent: str) -> list[str]:
    text = owner.model_fields[key].description or ""
    return [f"#{indent} # {line}" for line in textwrap.wrap(" ".join(text.split()), 88)]
