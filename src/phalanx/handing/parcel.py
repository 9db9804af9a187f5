"""What ``phalanx push`` would send: folders on this machine, complete, before anything is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from phalanx.config import loading
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, MissingPackage
from phalanx.export import json_line, rows_of
from phalanx.handing.cards import CARD, Sent, began, dataset_card, model_card
from phalanx.handing.members import base_label, base_name, chosen, folder_for, with_weights
from phalanx.handing.private import Marks, both
from phalanx.handing.weights import write_adapter, write_merged
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Member
from phalanx.version import __version__

MANIFEST = "phalanx.json"
FORMAT = 1
KINDS = ("preferences", "demonstrations")
MODES = ("adapter", "merged", "none")


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder that is to become a repository of the Hub."""

    kind: Literal["model", "dataset"]
    name: str
    folder: Path

    @property
    def files(self) -> list[tuple[str, int]]:
        """(path within it, bytes) of every file, sorted."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [(p.relative_to(self.folder).as_posix(), p.stat().st_size) for p in paths]


@dataclass(frozen=True, slots=True)
class Parcel:
    """The repositories, and what stays here with the reason of each."""

    repositories: tuple[Repository, ...]
    withheld: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedMember:
    """A member as the manifest of a repository names it.

    ``base`` is the name of its base on the Hub ("": none), ``label`` that of its folder where it
    was made; ``system_kept`` says that it had a system prompt which was not sent.
    """

    name: str
    folder: str
    kind: Literal["adapter", "merged"]
    base: str
    label: str
    system: str = ""
    system_kept: bool = False
    family: str = ""
    roles: tuple[str, ...] = ("contest", "judge", "learn")
    version: int = 0


def build(
    run: Path | str,
    repository: str,
    folder: Path,
    *,
    members: Sequence[str] = (),
    data: Sequence[str] | None = None,
    weights: str = "adapter",
    overrides: Sequence[str] = (),
) -> Parcel:
    """Write to ``folder`` what would be sent of a run, as ``folder/model`` and ``folder/dataset``.

    ``members`` and ``data`` choose (default: all that there is); ``overrides`` are further marks
    (``share.private=[system]``). Every file is looked through at the end: ConfigError where one
    holds something private, where nothing may be sent, or where what was asked for by name may not.
    """
    refuse_name(repository)
    if weights not in MODES:
        raise ConfigError(f"--weights {weights}: known are {', '.join(MODES)}")
    with Ledger(run_ledger_path(run)) as ledger:
        config = _config(ledger, overrides)
        work = _Work(ledger, config, Marks(ledger, config), folder, repository)
        work.wants_data = _kinds(data)
        if weights != "none":
            work.weights(members, weights)
        elif members:
            raise ConfigError("members are named, and --weights none sends none; leave one out")
        work.rows(explicit=data is not None)
        return work.finish()


def refuse_name(repository: str) -> None:
    """Raise ConfigError for what is no name of a repository with its owner."""
    try:
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError:
        raise MissingPackage("huggingface_hub", "hf", "the Hugging Face Hub") from None
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ConfigError(f"{repository!r} is no name of a repository: {error}") from None
    if repository.count("/") != 1:
        raise ConfigError(f"{repository!r} is no name of a repository: it is OWNER/NAME")


def _config(ledger: Ledger, overrides: Sequence[str]) -> Config:
    """The run's configuration with further marks; those that it has stay, whatever is said."""
    config = Config.model_validate(json.loads(ledger.get("config") or "{}"))
    foreign = [text for text in overrides if not text.startswith(("share.", "share="))]
    if foreign:
        raise ConfigError(
            f"{', '.join(foreign)}: the run is as it was made; only `share` can be set here"
        )
    if not overrides:
        return config
    share = both(config.share, loading.shaped(config, list(overrides)).share)
    return config.model_copy(update={"share": share})


def _kinds(data: Sequence[str] | None) -> tuple[str, ...]:
    unknown = [name for name in data or () if name not in (*KINDS, "none")]
    if unknown:
        raise ConfigError(f"--data {', '.join(unknown)}: known are {', '.join(KINDS)} and none")
    if data is None:
        return KINDS
    return tuple(kind for kind in KINDS if kind in data and "none" not in data)


class _Work:
    """One parcel while it is made."""

    def __init__(
        self, ledger: Ledger, config: Config, marks: Marks, folder: Path, name: str
    ) -> None:
        self.ledger, self.config, self.marks = ledger, config, marks
        self.folder, self.name = folder, name
        self.wants_data: tuple[str, ...] = KINDS
        self.sent: list[Sent] = []
        self.withheld: list[str] = []
        self.counts: dict[str, int] = {}
        self.left_out: dict[str, Counter[str]] = {}
        self.examples: dict[str, Mapping[str, Any]] = {}

    def weights(self, names: Sequence[str], mode: str) -> None:
        here = with_weights(self.ledger)
        kept = [name for name in names if name in self.marks.members]
        if kept:
            raise ConfigError(f"{', '.join(kept)} may not be sent: `share.members` names it")
        if not here and not names:
            self.withheld.append("weights: no member's weights are on this machine")
            return
        going: list[Member] = []
        for member in chosen(here, names):
            if member.name in self.marks.members:
                self.withheld.append(f"{member.name}: `share.members` names it")
            elif member.adapter is None and not member.version:
                self.withheld.append(f"{member.name}: it is its base as it is")
            else:
                going.append(member)
        for member in going:
            inner = folder_for(member.name, (CARD, MANIFEST)) if len(going) > 1 else ""
            merged = mode == "merged" or member.adapter is None
            self.sent.append(Sent(member, inner, merged, began(self.ledger, member)))
            place = self.folder / "model" / inner
            place.mkdir(parents=True, exist_ok=True)
            if merged:
                write_merged(member, place)
            else:
                write_adapter(member, place, public=base_name(member, self.config.share.bases))

    def rows(self, explicit: bool) -> None:
        for kind in self.wants_data:
            barred = next((t for t in (kind, "instructions") if t in self.marks.things), None)
            if barred:
                text = f"{kind} may not be sent: `share.private` has {barred}"
                if explicit:
                    raise ConfigError(text)
                self.withheld.append(text)
                continue
            self._write_rows(kind)

    def _write_rows(self, kind: str) -> None:
        place = self.folder / "dataset" / f"{kind}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        count, left_out = 0, Counter[str]()
        with place.open("w", encoding="utf-8") as file:
            for row in rows_of(self.ledger, kind, conversational=True):
                why = self.marks.why_row(row)
                if why:
                    left_out[why] += 1
                    continue
                if not count:
                    self.examples[kind] = row
                count += 1
                file.write(json_line(row))
        for why, number in left_out.items():
            self.withheld.append(f"{number} {kind}: each {why}")
        if count:
            self.counts[kind], self.left_out[kind] = count, left_out
        else:
            place.unlink()
            if not left_out:
                self.withheld.append(f"{kind}: the run has none")

    def finish(self) -> Parcel:
        if not self.sent and not self.counts:
            reasons = "\n  ".join(self.withheld) or "nothing was asked for"
            raise ConfigError(f"there is nothing that may be sent:\n  {reasons}")
        repositories = []
        if self.sent:
            model = self.folder / "model"
            text = model_card(
                self.ledger, self.config, self.marks, self.sent, where=self.name,
                dataset=self.name if self.counts else "",
            )  # fmt: skip
            (model / CARD).write_text(text, encoding="utf-8")
            (model / MANIFEST).write_text(self._manifest(), encoding="utf-8")
            repositories.append(Repository("model", self.name, model))
        if self.counts:
            rows = self.folder / "dataset"
            text = dataset_card(
                self.ledger, self.config, self.marks, where=self.name, counts=self.counts,
                left_out=self.left_out, examples=self.examples,
                model=self.name if self.sent else "",
            )  # fmt: skip
            (rows / CARD).write_text(text, encoding="utf-8")
            repositories.append(Repository("dataset", self.name, rows))
        for one in repositories:
            for name, _ in one.files:
                self.marks.refuse_file(one.folder / name, f"{one.kind}/{name}")
        return Parcel(tuple(repositories), tuple(self.withheld))

    def _manifest(self) -> str:
        members = [asdict(self._shared(one)) for one in self.sent]
        return json.dumps(
            {"format": FORMAT, "phalanx": __version__, "members": members},
            ensure_ascii=False, indent=2,
        ) + "\n"  # fmt: skip

    def _shared(self, one: Sent) -> SharedMember:
        member = one.member
        private = self.marks.keep_system(member)
        if private:
            self.withheld.append(f"the system prompt of {member.name}: it is marked private")
        return SharedMember(
            name=member.name,
            folder=one.folder,
            kind="merged" if one.merged else "adapter",
            base=base_name(one.began, self.config.share.bases),
            label=base_label(one.began),
            system="" if private else member.system,
            system_kept=private,
            family=member.family,
            roles=member.roles,
            version=member.version,
        )
