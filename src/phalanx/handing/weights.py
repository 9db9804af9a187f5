"""A member's weights as folders that transformers and PEFT load, without Phalanx."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from phalanx.errors import ConfigError, LedgerError
from phalanx.handing.cards import CARD, own_card
from phalanx.handing.members import base_label, base_name, the_one, with_weights
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.placing import placed
from phalanx.types import Member
from phalanx.weights import Weights
from phalanx.weights.adapters import CONFIG, TENSORS, resolve_adapter

DTYPES = ("auto", "bfloat16", "float16", "float32")


def write_merged(
    member: Member,
    folder: Path,
    *,
    dtype: str = "auto",
    say: Callable[[str], None] | None = None,
) -> None:
    """Write base + adapter, whole, with tokenizer, chat template and generation config.

    ``AutoModelForCausalLM.from_pretrained`` loads the folder. ``dtype`` auto is that of the base's
    own files; the sum is rounded to it once. Computed on the CPU. Raises EngineError where there is
    no base or adapter, or where the two cannot be merged.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    weights = Weights(device="cpu", say=say)
    try:
        weights.save(member, weights.merged(member, dtype), folder)
    finally:
        weights.close()


def write_adapter(member: Member, folder: Path, *, public: str | None = None) -> None:
    """Write the member's adapter as it is, its base by a name that loads.

    ``public`` is the name for other machines ("" for none: then the base's folder name); by default
    a base that is a folder here is named by its place, so that the adapter loads here.
    Raises LedgerError where the member has no adapter.
    """
    if member.adapter is None:
        why = "all its weights were trained" if member.version else "it is its base as it is"
        raise LedgerError(f"{member.name} has no adapter: {why}; export its weights instead")
    source = resolve_adapter(member.adapter, member.name)
    folder.mkdir(parents=True, exist_ok=True)
    settings = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    if public is None:
        place = Path(member.base).expanduser()
        name = str(place.resolve()) if place.is_dir() else base_name(member, {})
    else:
        name = public
    settings["base_model_name_or_path"] = name or base_label(member)
    (folder / CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(source / TENSORS, folder / TENSORS)


def export_weights(
    run: Path | str,
    *,
    member: str | None = None,
    iteration: int | None = None,
    out: Path | str | None = None,
    dtype: str = "auto",
    say: Callable[[str], None] | None = None,
) -> Path:
    """:func:`write_merged` of a run's member, with a card: the folder (default: NAME-MEMBER, here).

    ``iteration`` takes the version when that had ended. Raises ConfigError for a member that is not
    clear and a folder that holds something, LedgerError where the run has no weights.
    """
    return _exported(
        run, member, iteration, out, lambda one, to: write_merged(one, to, dtype=dtype, say=say)
    )


def export_adapter(
    run: Path | str,
    *,
    member: str | None = None,
    iteration: int | None = None,
    out: Path | str | None = None,
) -> Path:
    """:func:`write_adapter` of a run's member, as :func:`export_weights`."""
    return _exported(run, member, iteration, out, write_adapter)


def _exported(
    run: Path | str,
    name: str | None,
    iteration: int | None,
    out: Path | str | None,
    write: Callable[[Member, Path], None],
) -> Path:
    with Ledger(run_ledger_path(run)) as ledger:
        member = the_one(with_weights(ledger, iteration), name)
        target = Path(out) if out else Path(f"{Path(run).resolve().name}-{member.name}")
        ledger.refuse_target(target)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} exists already; remove it, or name another with --out")
        with placed(target) as place:
            place.mkdir()
            write(member, place)
            own = own_card(ledger, [member], merged=not (place / CONFIG).exists())
            (place / CARD).write_text(own, encoding="utf-8")
    return target
