"""What must not leave this machine: marked texts, keys, and places on its disk.

Everything that is to be sent passes through :class:`Marks`: rows one by one (those with something
private are left out and counted), and every other file whole (it is refused). Texts are compared by
their words alone, so that case, spacing, escapes and markup hide nothing.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from phalanx.config.schema import Config
from phalanx.config.schema_sharing import ShareSettings
from phalanx.errors import ConfigError
from phalanx.ledger import Ledger
from phalanx.rows import read_rows
from phalanx.types import Member

REMOVED = "[removed]"
PLAIN = (".txt", ".md", ".text")
KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|"
    r"github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}|(?:gsk|r8)_[A-Za-z0-9]{30,}|"
    r"(?:nvapi|xai)-[A-Za-z0-9_-]{30,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}|"
    r"AIza[0-9A-Za-z_-]{35})|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Access keys by the marks that their makers give them."""
_EAST = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
# Where words are not parted by spaces every sign counts as one.
_WORDS = re.compile(f"[{_EAST}]|[^\\W_{_EAST}]+")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_SECRET = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
_SHORT = 3
_VOCABULARIES = ("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt")
_KEY_WORDS = 8


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text, in lower case, whatever stands between them and however it is coded."""
    plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).casefold()
    return tuple(_WORDS.findall(plain))


class Texts:
    """Private texts: those of three words and more are found inside others, shorter ones alone."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole: set[tuple[str, ...]] = set()
        self._starts: dict[int, dict[tuple[str, ...], set[tuple[str, ...]]]] = {}
        for text in texts:
            words = words_of(text)
            if len(words) < _SHORT:
                self._whole |= {words} if words else set()
                continue
            size = min(len(words), _KEY_WORDS)
            self._starts.setdefault(size, defaultdict(set))[words[:size]].add(words)

    def __bool__(self) -> bool:
        return bool(self._whole or self._starts)

    def quoted_in(self, text: str, *, short: bool = True) -> bool:
        """Whether a private text stands in this one; with ``short`` also whether it is one."""
        words = words_of(text)
        if short and words in self._whole:
            return True
        for size, starts in self._starts.items():
            for at in range(len(words) - size + 1):
                found = starts.get(words[at : at + size], ())
                if any(words[at : at + len(one)] == one for one in found):
                    return True
        return False


def both(recorded: ShareSettings, given: ShareSettings) -> ShareSettings:
    """The marks of the two. A given file takes the place of one of its name that is gone."""
    found = {Path(source).name for source in given.sources}
    gone = {
        source
        for source in recorded.sources
        if Path(source).name in found and not Path(source).expanduser().is_file()
    }

    def joined(name: str) -> list[str]:
        every = [*getattr(recorded, name), *getattr(given, name)]
        return [one for one in dict.fromkeys(every) if one not in gone or name != "sources"]

    names = ("private", "members", "domains", "sources")
    return ShareSettings(**{name: joined(name) for name in names}, bases=given.bases)


class Marks:
    """What a configuration keeps back of a run, and a way to ask whether something may leave."""

    def __init__(self, ledger: Ledger, config: Config) -> None:
        share = config.share
        self.things = frozenset(share.private)
        self.members = frozenset(share.members)
        self.domains = frozenset(share.domains)
        recorded = _every_system(ledger)
        self.systems = {
            name: text
            for name, text in recorded
            if text and ("system" in self.things or name in self.members)
        }
        private = {text for name, text in recorded if name in self.systems}
        self._texts = Texts([*private, *_of_ledger(ledger, self), *_of_files(config)])
        self._keys = tuple(_secrets(config))
        self._places = _places(ledger.folder)

    def why_not(self, text: str, *, short: bool = True) -> str:
        """Why a text may not leave, "" where it may. ``short``: also where it is a private word or
        two, which among settings and names would be chance."""
        if any(key in text for key in self._keys) or KEYS.search(text):
            return "holds an access key"
        if any(place in text for place in self._places):
            return "names a place on this machine"
        if self._texts and self._texts.quoted_in(text, short=short):
            return "quotes a text that is marked private"
        return ""

    def keep_system(self, member: Member) -> bool:
        """Whether the member has a system prompt that may not leave."""
        return bool(member.system) and (
            member.name in self.systems or bool(self.why_not(member.system))
        )

    def why_row(self, row: Mapping[str, Any]) -> str:
        """Why a row may not leave, "" where it may."""
        if row.get("domain") in self.domains:
            return f"is of the private domain {row['domain']}"
        return next(filter(None, map(self.why_not, strings_in(row))), "")

    def cleaned(self, text: str) -> str:
        """A setting without keys and places; of a place the last part is left."""
        for key in self._keys:
            text = text.replace(key, REMOVED)
        text = KEYS.sub(REMOVED, text)
        scheme, colon, rest = text.rpartition(":")  # script:/a/place/x.yaml
        if rest.startswith(("/", "~")) and not rest.startswith("//"):
            return f"{scheme}{colon}{Path(rest).name}"
        for place in self._places:
            text = text.replace(place, REMOVED)
        return REMOVED if self._texts and self._texts.quoted_in(text, short=False) else text

    def refuse_file(self, path: Path, shown: str) -> None:
        """Raise ConfigError where a file that is to be sent holds something private.

        This is the last gate, behind those that left rows and settings out: nothing is sent.
        """
        found = (self.why_not(text, short=False) for text in _strings_of_file(path))
        if why := next(filter(None, found), ""):
            raise ConfigError(f"nothing is sent: {shown} {why}; see `share` in the configuration")


def strings_in(value: Any) -> Iterator[str]:
    """Every text within plain values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key)
            yield from strings_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from strings_in(part)


def _strings_of_file(path: Path) -> Iterator[str]:
    """What a file says: texts of JSON as they are meant, without their escapes.

    A vocabulary is passed over: its short pieces say nothing of a run.
    """
    if path.suffix == ".safetensors":
        yield from strings_in(_header_of(path))
    elif path.name not in _VOCABULARIES:
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".jsonl":
            yield from (
                one for line in text.split("\n") if line for one in strings_in(json.loads(line))
            )
        elif path.suffix == ".json":
            yield from strings_in(json.loads(text))
        else:
            yield text


def _header_of(path: Path) -> dict[str, Any]:
    """What a safetensors file says of itself, beside names and shapes (its header is JSON)."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(size)).get("__metadata__", {})


def _every_system(ledger: Ledger) -> list[tuple[str, str]]:
    """(member, system prompt) of every version that was recorded."""
    rows = ledger.query("SELECT member, record FROM members")
    return [(row["member"], json.loads(row["record"])["system"]) for row in rows]


def _of_ledger(ledger: Ledger, marks: Marks) -> Iterator[str]:
    """The instructions that are private: all, or those of some domains; every turn of each."""
    everything = "instructions" in marks.things
    if not everything and not marks.domains:
        return
    for row in ledger.iterate("SELECT text, domain, later FROM instructions"):
        if everything or row["domain"] in marks.domains:
            yield row["text"]
            yield from (turn["content"] for turn in json.loads(row["later"] or "[]"))


def _of_files(config: Config) -> Iterator[str]:
    for source in config.share.sources:
        path = Path(source).expanduser()
        if not path.is_file():
            raise ConfigError(
                f"share.sources: {source} is not here, so its texts cannot be kept back; restore "
                f"it, or say where it is now: share.sources=[FOLDER/{path.name}]"
            )
        if path.suffix.lower() in PLAIN:
            yield from path.read_text(encoding="utf-8").splitlines()
            continue
        table = read_rows(str(path))
        if table.bad:
            bad = table.bad[0]
            raise ConfigError(
                f"share.sources: {source}: {len(table.bad)} rows cannot be read (line {bad.line}: "
                f"{bad.reason}), so their texts could not be kept back; mend them"
            )
        for row in table.rows:
            for name, value in row.fields.items():
                own = name == config.instructions.column
                # Labels and short answers of other columns are no texts that could be recognised.
                yield from (one for one in strings_in(value) if own or len(words_of(one)) >= _SHORT)


def _secrets(config: Config) -> Iterator[str]:
    """The keys that this environment holds: for the run's endpoints, for trackers, for the Hub."""
    names = {endpoint.key for endpoint in config.endpoints}
    for name, value in os.environ.items():
        least = 8 if name in names else 12  # a shorter one of another is a common word
        if len(value) >= least and (name in names or _SECRET.search(name)):
            yield value


def _places(folder: Path) -> tuple[str, ...]:
    """Folders of this machine whose names must not show, the longest first."""
    found = {str(folder.resolve()), str(Path.cwd()), str(Path.home())}
    return tuple(sorted((p for p in found if p.count("/") > 1), key=len, reverse=True))
