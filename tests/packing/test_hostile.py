"""An archive that is broken, or that somebody made to do harm, is refused and leaves nothing."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from phalanx.errors import ConfigError
from phalanx.ledger.schema import SCHEMA_VERSION
from phalanx.packing import FORMAT, unpack
from tests.packing.forged import Forged, forge_ledger, refused


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../evil", "leaves its folder"),
        ("/tmp/evil", "leaves its folder"),
        ("adapters/../../evil", "leaves its folder"),
        ("adapters//evil", "leaves its folder"),
        ("C:\\evil", "no plain name"),
        ("adapters/a\x1b[2J", "no plain name"),
        ("lock", "is no file of a run"),
        ("ledger.sqlite-wal", "is no file of a run"),
        ("adapters", "is no file of a run"),
        ("report.html", "is no file of a run"),
        ("inputs/\udcff", "no plain name"),
        ("adapters/" + "ä" * 130, "a part of more than 255 bytes"),
    ],
)
def test_a_file_that_no_run_has_is_refused(name, words, made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.add(name)
    refused(forged.write(tmp_path / "a.tar.gz", hashed=True), words, tmp_path / "new")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_devices_and_pipes_are_refused(kind, made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.add("adapters/x", b"", kind, "/etc/passwd")
    path = forged.write(tmp_path / "a.tar.gz", hashed=True)
    refused(path, "is no plain file", tmp_path / "new")


def test_what_the_manifest_does_not_name_is_refused(made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.add("adapters/x")
    refused(forged.write(tmp_path / "a.tar.gz"), "not in its manifest", tmp_path / "new")
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.entries.append(forged.entries[-1])
    refused(forged.write(tmp_path / "b.tar.gz"), "is twice in it", tmp_path / "new")


def test_one_byte_that_differs_is_found(made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    entry, data = forged.entries[-1]
    forged.entries[-1] = (entry, data[:-1] + bytes([data[-1] ^ 1]))
    refused(forged.write(tmp_path / "a.tar.gz"), "is not what its manifest says", tmp_path / "new")
    forged.entries[-1] = (entry, data + b"more")
    refused(forged.write(tmp_path / "b.tar.gz"), "bytes, its manifest says", tmp_path / "new")
    forged.entries.pop()
    refused(forged.write(tmp_path / "c.tar.gz"), "is cut short: 1 of", tmp_path / "new")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_an_archive_that_is_cut_off_is_refused(share, made, tmp_path):
    data = (made / "run.phalanx.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(data[: int(len(data) * share)])
    refused(tmp_path / "a.tar.gz", "archive of a run|is cut short|is broken", tmp_path / "new")


def test_noise_in_an_archive_is_refused(made, tmp_path):
    data = bytearray((made / "run.phalanx.tar.gz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "a.tar.gz").write_bytes(bytes(data))
    refused(tmp_path / "a.tar.gz", "is broken|is damaged|is refused", tmp_path / "new")
    (tmp_path / "b.tar.gz").write_bytes(b"PK\x03\x04 a zip file")
    refused(tmp_path / "b.tar.gz", "neither gzip nor xz", tmp_path / "new")
    (tmp_path / "c.tar.gz").write_bytes(gzip.compress(b"no tar file at all" * 100))
    refused(tmp_path / "c.tar.gz", "no archive of a run", tmp_path / "new")


def test_what_unpacks_to_more_than_there_is_room_for_is_refused_before_it_is_written(
    made, tmp_path
):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.manifest["files"]["adapters/bomb"] = {"size": 10**18, "sha256": "0" * 64}
    refused(forged.write(tmp_path / "a.tar.gz"), "it needs 1000000000", tmp_path / "new")


def test_a_header_that_claims_a_great_size_is_not_read_into_memory(made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb") as file:
        for entry, data in [(forged.entries[0][0], json.dumps(forged.manifest).encode())]:
            entry.size = len(data)
            file.write(entry.tobuf() + data + b"\0" * (-len(data) % 512))
        long = tarfile.TarInfo("././@PaxHeader")
        long.type, long.size = tarfile.XHDTYPE, 2**32
        file.write(long.tobuf(tarfile.USTAR_FORMAT))
    refused(path, "a header of it claims", tmp_path / "new")


def test_a_newer_form_and_a_newer_ledger_say_what_to_do(made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.manifest["format"] = FORMAT + 1
    refused(forged.write(tmp_path / "a.tar.gz"), "update phalanx", tmp_path / "new")
    forged = Forged(made / "run.phalanx.tar.gz")
    forge_ledger(forged, "UPDATE run SET value = '99' WHERE key = 'schema_version'", tmp_path)
    path = forged.write(tmp_path / "b.tar.gz", hashed=True)
    refused(path, "newer than the .* update phalanx", tmp_path / "new")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM duels; END", "a trigger"),
        ("CREATE VIEW v AS SELECT 1", "a view"),
        ("CREATE TABLE mine (x)", "a table"),
        # Names as SQLite's own are no excuse.
        ("CREATE TRIGGER sqlitex AFTER INSERT ON events BEGIN DELETE FROM duels; END", "a trigger"),
        ("CREATE VIEW sqlitezz AS SELECT 1", "a view"),
        ("CREATE TABLE sqlitezz (x)", "a table"),
        ("DROP TABLE bouts; CREATE VIRTUAL TABLE bouts USING dbstat", "'dbstat' in its table"),
        ("ALTER TABLE bouts ADD COLUMN at2 AS (zeroblob(1 << 30))", "in its table 'bouts'"),
        ("CREATE INDEX i ON duels (length(zeroblob(9)))", "in its index 'i'"),
        ("ALTER TABLE duels DROP COLUMN matched", "has no duels.matched"),
        ("DROP TABLE labels", "has no labels"),
        ("UPDATE run SET value = 'no JSON' WHERE key = 'config'", "a configuration that is none"),
        ("UPDATE run SET value = x'ff' WHERE key = 'config'", "a configuration that is none"),
        ("UPDATE run SET value = '{\"pool\": 1}' WHERE key = 'config'", "new: its configuration"),
        (
            f"UPDATE run SET value = '{'[' * 99_999}{']' * 99_999}' WHERE key = 'config'",
            "a configuration that is none",
        ),
        ("UPDATE members SET record = NULL", "a member that is none"),
        ("UPDATE members SET record = '[]'", "a member that is none"),
        ("UPDATE members SET record = json_remove(record, '$.name')", "a member that is none"),
        ("UPDATE members SET record = json_set(record, '$.base', 5)", "a member that is none"),
        (
            "UPDATE members SET record = json_set(record, '$.trust_remote_code', json('true'))",
            "lets 'ada' run code of its own",
        ),
        ("DELETE FROM run WHERE key = 'config'", "no configuration"),
        ("DROP TABLE run", "no ledger"),
        (
            "UPDATE members SET record = json_set(record, '$.adapter', 'run:../../../etc')",
            "outside of its run",
        ),
    ],
)
def test_a_ledger_that_brings_more_than_rows_is_refused(sql, words, made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forge_ledger(forged, sql, tmp_path)
    path = forged.write(tmp_path / "a.tar.gz", hashed=True)
    refused(path, words, tmp_path / "new")


def test_what_is_no_ledger_at_all_is_refused(made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    at = next(n for n, (entry, _) in enumerate(forged.entries) if entry.name == "ledger.sqlite")
    forged.entries[at] = (forged.entries[at][0], b"SQLite format 3\0" + b"\xff" * 5000)
    path = forged.write(tmp_path / "a.tar.gz", hashed=True)
    refused(path, "is no ledger", tmp_path / "new")


@pytest.mark.parametrize(
    "name", [".git", "-rf", "..", "a/b", "~", "x\n", "a\x1b[2Jb", "\u202efdp.exe", " ", ""]
)
def test_the_name_of_an_archive_is_that_of_a_folder_that_is_seen(name, made, tmp_path, monkeypatch):
    """Whoever made it does not choose where among one's own files it lands."""
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.manifest["name"] = name
    path = forged.write(tmp_path / "a.tar.gz")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match=r"give one with --out|its manifest: name"):
        unpack(path)
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", True, "its manifest: format"),
        ("format", 0, "its manifest: format"),
        ("format", "1", "its manifest: format"),
        ("ledger_schema", SCHEMA_VERSION + 1, "newer than the .* update phalanx"),
        ("bases", ["a\x1b[2J"], "its manifest: bases.0"),
        ("missing", ["\ud800"], "its manifest: missing.0"),
        ("left_out", ["\u202e"], "its manifest: left_out.0"),
    ],
)
def test_a_manifest_that_says_what_none_says_is_refused(key, value, words, made, tmp_path):
    forged = Forged(made / "run.phalanx.tar.gz")
    forged.manifest[key] = value
    refused(forged.write(tmp_path / "a.tar.gz"), words, tmp_path / "new")


def test_a_file_in_a_file_is_refused(made, tmp_path):
    for number, names in enumerate((("adapters/a", "adapters/a/b"), ("inputs/a/b", "inputs/a"))):
        forged = Forged(made / "run.phalanx.tar.gz")
        for name in names:
            forged.add(name)
        path = forged.write(tmp_path / f"{number}.tar.gz", hashed=True)
        refused(path, "which is a file", tmp_path / "new")


def written(path: Path, *blocks: bytes) -> Path:
    with gzip.open(path, "wb") as file:
        for block in blocks:
            file.write(block + b"\0" * (-len(block) % 512))
        file.write(b"\0" * 1024)
    return path


def head(kind: bytes, size: int, name: str = "x") -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


def test_headers_and_manifests_that_lie_of_themselves_are_refused(tmp_path):
    long = b"13 path=abcd\n"
    chain = [head(tarfile.XHDTYPE, len(long)), long] * 3000
    refused(written(tmp_path / "a.tar.gz", *chain), "is broken", tmp_path / "new")
    below = head(tarfile.REGTYPE, -512, "manifest.json")
    refused(written(tmp_path / "b.tar.gz", below), "manifest has -512 bytes", tmp_path / "new")
    deep = b"[" * 100_000 + b"]" * 100_000
    blocks = head(tarfile.REGTYPE, len(deep), "manifest.json"), deep
    refused(written(tmp_path / "c.tar.gz", *blocks), "manifest has no form", tmp_path / "new")
