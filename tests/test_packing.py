"""A run as one archive: the same rows elsewhere, and nothing of what a hostile one wants."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

import phalanx
from phalanx.config import load
from phalanx.config.schema import Config
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, RunLock, run_ledger_path
from phalanx.ledger.schema import SCHEMA_VERSION
from phalanx.loop import align
from phalanx.packing import FORMAT, pack, unpack
from phalanx.types import Member
from tests.ledger.old import SMOKE, old_run
from tests.scripts import command
from tests.tiny import make_adapter, make_tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A finished run whose instructions, script and adapter lie elsewhere; and its archive."""
    home = tmp_path_factory.mktemp("home")
    for name in ("rubric.yaml", "instructions.jsonl"):
        shutil.copy(SMOKE / name, home / name)
    align(load(home / "rubric.yaml"), home / "run")
    adapter = home / "run" / "adapters" / "iteration-1" / "ada"
    adapter.mkdir(parents=True)
    (adapter / "adapter_model.safetensors").write_bytes(os.urandom(3000))
    (home / "run" / "servers").mkdir()
    (home / "run" / "servers" / "secret.log").write_text("token")
    pack(home / "run", home / "run.phalanx.tar.gz")
    return home


def rows(folder: Path) -> dict[str, list]:
    """Every row of every table but the facts, as it is stored."""
    with closing(sqlite3.connect(run_ledger_path(folder))) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        return {t: db.execute(f"SELECT * FROM {t}").fetchall() for t in tables if t != "run"}


def facts(folder: Path) -> dict[str, str]:
    with closing(sqlite3.connect(run_ledger_path(folder))) as db:
        return dict(db.execute("SELECT key, value FROM run"))


@pytest.mark.parametrize("ending", ["tar.gz", "tar.xz"])
def test_every_row_and_file_comes_back(ending, made, tmp_path):
    packed = pack(made / "run", tmp_path / f"x.{ending}")
    opened = unpack(packed.path, tmp_path / "new")
    assert rows(opened.folder) == rows(made / "run")
    ours, theirs = facts(opened.folder), facts(made / "run")
    config, before = json.loads(ours.pop("config")), json.loads(theirs.pop("config"))
    assert ours == theirs
    source = config["instructions"].pop("source")
    assert Path(source).read_bytes() == (made / "instructions.jsonl").read_bytes()
    assert Path(source).is_relative_to(tmp_path / "new")
    assert before["instructions"].pop("source") == str(made / "instructions.jsonl")
    assert config == before
    name = "adapters/iteration-1/ada/adapter_model.safetensors"
    assert (opened.folder / name).read_bytes() == (made / "run" / name).read_bytes()
    assert opened.missing_bases == ()
    assert packed.manifest.left_out == ["servers"]
    assert not list(opened.folder.rglob("*.log"))


def test_a_run_goes_on_at_its_new_place_without_the_old_one(made, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(made, home)
    shutil.move(home / "run.phalanx.tar.gz", tmp_path / "a.tar.gz")
    settings = ["iterations=3"]
    align(load(home / "rubric.yaml", settings), tmp_path / "whole")
    shutil.rmtree(home)
    folder = unpack(tmp_path / "a.tar.gz", tmp_path / "new").folder
    for words in (
        ("report", folder),
        ("status", folder),
        ("export", folder, "judgments", "--out", tmp_path / "j.jsonl"),
        ("run", folder / "config.yaml", "--out", folder, "--quiet", *settings),
    ):
        done = command(*words)
        assert done.returncode == 0, (words, done.stderr)
    with Ledger(run_ledger_path(folder)) as a, Ledger(run_ledger_path(tmp_path / "whole")) as b:
        ours, theirs = a.contents(), b.contents()
    for table in ("duels", "judgments", "outcomes", "responses", "states", "pairs"):
        assert ours[table] == theirs[table]
    # It can be packed again, from there.
    again = pack(folder, tmp_path / "again.tar.gz")
    shutil.move(folder, tmp_path / "gone")
    last = unpack(again.path, tmp_path / "last").folder
    assert rows(last) == rows(tmp_path / "gone")
    assert command("run", last / "config.yaml", "--out", last, "iterations=4").returncode == 0


def test_a_packed_script_is_what_its_member_answers_from(tmp_path):
    script = tmp_path / "script.yaml"
    shipped = Path(phalanx.__file__).parent / "engines" / "scripts" / "default.yaml"
    shutil.copy(shipped, script)
    config = load(SMOKE / "rubric.yaml", {"pool.members": [
        {"name": name, "engine": "scripted", "model": f"script:{script}"} for name in "abcd"
    ]})  # fmt: skip
    align(config, tmp_path / "run")
    archive = pack(tmp_path / "run", tmp_path / "a.tar.gz").path
    script.unlink()
    folder = unpack(archive, tmp_path / "new").folder
    with Ledger(run_ledger_path(folder)) as ledger:
        places = {member.base.removeprefix("script:") for member in ledger.members()}
    assert [Path(place).is_relative_to(folder) for place in places] == [True]
    done = command("run", folder / "config.yaml", "--out", folder, "iterations=3", "--quiet")
    assert done.returncode == 0, done.stderr


def test_adapters_and_bases_are_told_and_found_again(tmp_path):
    """Adapters that the pool came with are packed, bases are not: they are named."""
    adapter = tmp_path / "pool" / "ada"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    base = str(tmp_path / "models" / "large")
    config = Config.model_validate(
        {"pool": {"base": base, "members": [{"name": "ada", "adapter": str(adapter)}]}}
    )
    run = tmp_path / "run"
    with Ledger(run_ledger_path(run), writable=True) as ledger:
        start = {"config": config.model_dump_json(), "method": "sparta"}
        ledger.record_start(start, [Member("ada", base, str(adapter))], [])
    packed = pack(run, tmp_path / "a.tar.gz")
    assert packed.manifest.bases == [base]
    shutil.rmtree(tmp_path / "pool")
    opened = unpack(packed.path, tmp_path / "new")
    assert opened.missing_bases == (base,)
    with Ledger(run_ledger_path(opened.folder)) as ledger:
        (member,) = ledger.members()
        assert ledger.query("SELECT adapter FROM members")[0]["adapter"].startswith("run:inputs/")
    assert (Path(member.adapter) / "adapter_config.json").read_text() == "{}"
    here = tmp_path / "here"
    here.mkdir()
    opened = unpack(packed.path, tmp_path / "other", bases={base: str(here)})
    assert opened.missing_bases == ()
    with Ledger(run_ledger_path(opened.folder)) as ledger:
        assert ledger.members()[0].base == str(here)
    assert str(here) in (opened.folder / "config.yaml").read_text()
    assert base not in (opened.folder / "config.yaml").read_text()
    with pytest.raises(ConfigError, match="the run has no such base; it has "):
        unpack(packed.path, tmp_path / "third", bases={"/models/none": str(here)})


def test_without_weights_it_says_what_is_missing(made, tmp_path):
    packed = pack(made / "run", tmp_path / "a.tar.gz", weights=False)
    assert packed.manifest.missing == ["adapters (packed without weights)"]
    done = command("unpack", packed.path, "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert "Not in the archive: adapters (packed without weights)" in done.stderr
    assert not (tmp_path / "new" / "adapters").exists()


def test_a_run_that_goes_on_is_not_packed(made, tmp_path):
    lock = RunLock(made / "run")
    try:
        with pytest.raises(LedgerError, match="in use by process"):
            pack(made / "run", tmp_path / "a.tar.gz")
    finally:
        lock.release()
    assert list(tmp_path.iterdir()) == []


def test_an_old_run_is_packed_as_it_is_and_brought_up_to_date_where_it_is_opened(tmp_path):
    old_run(4, tmp_path / "run")
    packed = pack(tmp_path / "run", tmp_path / "a.tar.gz")
    assert packed.manifest.ledger_schema == 4
    folder = unpack(packed.path, tmp_path / "new").folder
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.get("schema_version") == str(SCHEMA_VERSION)
        assert ledger.count("duels") == 12
    assert not list(folder.glob("ledger.sqlite.*"))


def test_places_that_are_taken_are_refused(made, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="there exists; choose another folder"):
        unpack(made / "run.phalanx.tar.gz", tmp_path / "there")
    with pytest.raises(ConfigError, match="exists; remove it"):
        pack(made / "run", made / "run.phalanx.tar.gz")
    with pytest.raises(ConfigError, match=r"ends in \.tar\.gz or \.tar\.xz"):
        pack(made / "run", tmp_path / "a.zip")
    with pytest.raises(LedgerError, match="no run in"):
        pack(tmp_path / "there")


# Hostile and broken archives ----------------------------------------------------------------------


class Forged:
    """The archive taken apart, to be put together otherwise."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            self.entries = [(entry, tar.extractfile(entry).read()) for entry in tar]
        self.manifest = json.loads(self.entries[0][1])

    def write(self, path: Path, *, hashed: bool = False) -> Path:
        """``hashed``: the manifest says what is there, hashes and all."""
        if hashed:
            self.manifest["files"] = {
                entry.name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for entry, data in self.entries[1:]
            }
        self.entries[0] = (self.entries[0][0], json.dumps(self.manifest).encode())
        with tarfile.open(path, "w:gz") as tar:
            for entry, data in self.entries:
                entry.size = len(data) if entry.isreg() else 0
                tar.addfile(entry, io.BytesIO(data))
        return path

    def add(self, name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = ""):
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, link
        self.entries.append((entry, data))


def refused(path: Path, words: str, into: Path) -> None:
    before = set(into.parent.rglob("*"))
    with pytest.raises((ConfigError, LedgerError), match=words):
        unpack(path, into)
    assert set(into.parent.rglob("*")) == before, "something was left behind"


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


def forge_ledger(forged: Forged, sql: str, scratch: Path) -> None:
    at = next(n for n, (entry, _) in enumerate(forged.entries) if entry.name == "ledger.sqlite")
    file = scratch.parent / f"{scratch.name}.forged"
    file.write_bytes(forged.entries[at][1])
    with closing(sqlite3.connect(file)) as db, db:
        db.executescript(sql)
    forged.entries[at] = (forged.entries[at][0], file.read_bytes())
    file.unlink()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM duels; END", "a trigger"),
        ("CREATE VIEW v AS SELECT 1", "a view"),
        ("CREATE TABLE mine (x)", "a table"),
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


def _die_while(what: str, source: str, target: str) -> None:
    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if what == "pack":
        tarfile.TarFile.close = die
        pack(source, target)
    else:
        import phalanx.placing

        phalanx.placing._move = die
        unpack(source, target)


@pytest.mark.parametrize("what", ["pack", "unpack"])
def test_who_is_killed_half_way_leaves_nothing_half_at_the_place(what, made, tmp_path):
    source = made / ("run" if what == "pack" else "run.phalanx.tar.gz")
    target = tmp_path / ("a.tar.gz" if what == "pack" else "new")
    arguments = (what, str(source), str(target))
    process = multiprocessing.get_context("spawn").Process(target=_die_while, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not target.exists()
    (pack if what == "pack" else unpack)(source, target)
    assert target.exists()


@pytest.mark.slow
def test_a_run_with_weights_learns_on_at_its_new_place(tmp_path):
    """Adapters of the pool and of the run are packed; the base is elsewhere on the new machine."""
    home = tmp_path / "home"
    base = make_tiny(home / "base", seed=1, template="chatml")
    roles = {"ada": ["contest", "learn"], "bob": ["contest"], "cora": ["judge"]}
    members = [
        {
            "name": name,
            "adapter": str(make_adapter(base, home / "pool" / name, seed=len(name) + ord(name[0]))),
            "roles": own,
        }
        for name, own in roles.items()
    ]
    settings = {
        "seed": 3,
        "pool": {"base": str(base), "members": members},
        "instructions.source": "builtin:skills",
        "match.duels": 4,
        "answer.max_new_tokens": 6,
        "pairs.truncated": "allow",
        "pairs.keep": 1.0,
        "train.epochs": 1,
        "resources.threads": 1,
        "judge.protocol": "likelihood",
    }
    align(load("preset:sparta-small", {**settings, "iterations": 1}), home / "run")
    packed = pack(home / "run", tmp_path / "a.tar.gz")
    assert packed.manifest.bases == [str(base)]
    align(load("preset:sparta-small", {**settings, "iterations": 2}), home / "run")
    with Ledger(run_ledger_path(home / "run")) as ledger:
        stayed = ledger.contents()
    home.rename(tmp_path / "gone")
    here = tmp_path / "gone" / "base"
    folder = unpack(packed.path, tmp_path / "new", bases={str(base): str(here)}).folder
    align(load(folder / "config.yaml", ["iterations=2"]), folder)
    with Ledger(run_ledger_path(folder)) as ledger:
        moved = ledger.contents()
        assert [member.version for member in ledger.members()] == [2, 0, 0]
        assert all(Path(member.adapter).is_relative_to(folder) for member in ledger.members())
    for table in ("responses", "outcomes", "pairs", "trainings", "states"):
        assert moved[table] == stayed[table]
