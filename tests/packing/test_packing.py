"""A run as one archive: the same rows elsewhere, and nothing of what a hostile one wants."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
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
from phalanx.packing import pack, unpack
from phalanx.types import Member
from tests.ledger.old import SCHEMAS, SMOKE, old_run
from tests.scripts import command
from tests.tiny import make_adapter, make_tiny


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
    assert source.startswith("run:inputs/"), "it could not be moved again"
    inside = tmp_path / "new" / source.removeprefix("run:")
    assert inside.read_bytes() == (made / "instructions.jsonl").read_bytes()
    with Ledger(run_ledger_path(opened.folder)) as ledger:
        assert json.loads(ledger.get("config"))["instructions"]["source"] == str(inside)
    assert before["instructions"].pop("source") == str(made / "instructions.jsonl")
    assert config == before
    name = "adapters/iteration-1/ada/adapter_model.safetensors"
    assert (opened.folder / name).read_bytes() == (made / "run" / name).read_bytes()
    assert opened.missing_bases == ()
    assert packed.manifest.left_out == ["servers"]
    assert not list(opened.folder.rglob("*.log"))
    again = pack(made / "run", tmp_path / f"y.{ending}")
    assert again.path.read_bytes() == packed.path.read_bytes(), "it tells when or where it was made"


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


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_old_run_is_packed_as_it_is_and_brought_up_to_date_where_it_is_opened(schema, tmp_path):
    old_run(schema, tmp_path / "run")
    packed = pack(tmp_path / "run", tmp_path / "a.tar.gz")
    assert packed.manifest.ledger_schema == schema
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


def _die_while(what: str, source: str, target: str) -> None:
    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if what == "pack":
        tarfile.TarFile.close = die
        pack(source, target)
    else:
        import phalanx.placing

        phalanx.placing._move_new = die
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


def test_a_run_that_was_unpacked_may_be_moved(made, tmp_path):
    """Its own inputs are named by their place in it, before and after it went on."""
    folder = unpack(made / "run.phalanx.tar.gz", tmp_path / "new").folder
    for number, name in ((3, "moved"), (4, "again")):
        folder = folder.rename(tmp_path / name)
        align(load(folder / "config.yaml", [f"iterations={number}"]), folder)
    with Ledger(run_ledger_path(folder)) as ledger:
        assert ledger.count("states") == 4
        assert (
            Path(json.loads(ledger.get("config"))["instructions"]["source"]).parent.parent == folder
        )


def test_what_lies_in_the_run_itself_is_packed_with_it(tmp_path):
    """A script and an adapter beside the ledger are inputs, too; what nobody names is not."""
    run = tmp_path / "run"
    run.mkdir()
    shipped = Path(phalanx.__file__).parent / "engines" / "scripts" / "default.yaml"
    shutil.copy(shipped, run / "own.yaml")
    config = load(SMOKE / "rubric.yaml", {"pool.members": [
        {"name": name, "engine": "scripted", "model": f"script:{run / 'own.yaml'}"}
        for name in "abcd"
    ]})  # fmt: skip
    align(config, run)
    packed = pack(run, tmp_path / "a.tar.gz")
    assert packed.manifest.left_out == ["own.yaml"]
    shutil.rmtree(run)
    folder = unpack(packed.path, tmp_path / "new").folder
    align(load(folder / "config.yaml", ["iterations=3"]), folder)


def test_a_word_that_happens_to_name_a_file_here_is_not_packed(made, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    with closing(sqlite3.connect(run_ledger_path(run))) as db, db:
        db.execute("UPDATE run SET value = json_set(value, '$.instructions.source', 'notes') "
                   "WHERE key = 'config'")  # fmt: skip
    (tmp_path / "notes").write_text("mine")
    monkeypatch.chdir(tmp_path)
    assert list(pack(run).manifest.files)[:2] == ["ledger.sqlite", "config.yaml"]
    assert not [name for name in pack(run, "b.tar.gz").manifest.files if "notes" in name]


def test_what_cannot_be_packed_is_told(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    (run / b"od\xffd\x1b[2J".decode(errors="surrogateescape")).write_text("x")
    (tmp_path / "far").mkdir()
    (run / "adapters" / "linked").symlink_to(tmp_path / "far")
    (run / "adapters" / "broken").symlink_to(tmp_path / "nothing")
    os.mkfifo(run / "adapters" / "pipe")
    done = command("pack", run, "--out", tmp_path / "a.tar.gz")
    assert done.returncode == 0, done.stderr
    assert "Left out: od?d?[2J, servers" in done.stderr
    for name in ("linked", "broken", "pipe"):
        assert f"adapters/{name} (neither a file nor a folder of its own)" in done.stderr
    with closing(sqlite3.connect(run_ledger_path(run))) as db, db:
        db.execute("CREATE VIEW mine AS SELECT 1")
    with pytest.raises(LedgerError, match=r"ledger\.sqlite has a view 'mine': no ledger has"):
        pack(run, tmp_path / "b.tar.gz")
    assert not (tmp_path / "b.tar.gz").exists()


def test_who_comes_second_does_not_take_the_place_of_the_first(made, tmp_path, monkeypatch):
    """Two unpack to one place at once: the one that is there stays, whole."""
    unpacking = sys.modules["phalanx.packing.unpack"]  # the name is that of the function
    settle = unpacking._settle

    def slowly(*given):
        settle(*given)
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "first").write_text("mine")

    monkeypatch.setattr(unpacking, "_settle", slowly)
    with pytest.raises(FileExistsError, match="somebody else made it meanwhile"):
        unpack(made / "run.phalanx.tar.gz", tmp_path / "new")
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "first"]


def test_what_a_killed_process_left_stops_nobody(made, tmp_path):
    """Its number comes again: in a container every process may be number 7."""
    for name in (f".new.{os.getpid()}", f".a.tar.gz.{os.getpid()}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ledger.sqlite").write_text("half")
    unpack(made / "run.phalanx.tar.gz", tmp_path / "new")
    pack(tmp_path / "new", tmp_path / "a.tar.gz")


def test_a_run_whose_folder_is_reached_by_a_link_goes_on(tmp_path):
    """Its own files are named from it, whatever it is called when it is started and resumed."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for name in ("rubric.yaml", "instructions.jsonl"):
        shutil.copy(SMOKE / name, real / name)
    for number, folder in enumerate((link, link, real), 1):
        align(load(real / "rubric.yaml", [f"iterations={number}"]), folder)
    with Ledger(run_ledger_path(real)) as ledger:
        assert ledger.count("states") == 3


def test_a_run_with_a_setting_of_another_version_is_looked_at_elsewhere(made, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    with closing(sqlite3.connect(run_ledger_path(run))) as db, db:
        db.execute("UPDATE run SET value = json_set(value, '$.match.of_old', 3) "
                   "WHERE key = 'config'")  # fmt: skip
    folder = unpack(pack(run, tmp_path / "a.tar.gz").path, tmp_path / "new").folder
    assert "of_old" not in (folder / "config.yaml").read_text()
    assert command("report", folder, "--out", tmp_path / "r.html").returncode == 0
