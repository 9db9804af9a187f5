"""The tables of a run's ledger.

Tables with long rows keep them in the order of writing (no WITHOUT ROWID): a row in the tree of a
random id would be cut up over several pages.

What would be stored many times is stored once, and :class:`~phalanx.ledger.store.Ledger` brings
SQL functions that put it back: ``messages`` and ``want`` of responses point into ``texts``
(``full_messages(messages)``, ``full_text(want)``); ``probabilities`` are doubles in the order of
the options (``full_probabilities(probabilities, want)``, JSON); a judgment whose ``raw`` is what
its responses say has their ids in ``requests`` instead (``full_raw(raw, requests)``, JSON).

Who changes a table here raises ``SCHEMA_VERSION``; what :mod:`phalanx.ledger.migrating` cannot
tell from the statements alone (the value of a new column in old rows) is said there.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

SCHEMA_VERSION = 6

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE members (
  member TEXT, version INTEGER, iteration INTEGER, base TEXT, adapter TEXT, record TEXT,
  PRIMARY KEY (member, version)) WITHOUT ROWID;
CREATE TABLE instructions (
  id TEXT PRIMARY KEY, text TEXT, domain TEXT, answer TEXT, flags TEXT, later TEXT);
CREATE TABLE responses (
  id TEXT PRIMARY KEY, iteration INTEGER, phase TEXT, purpose TEXT, member TEXT, version INTEGER,
  messages TEXT, want INTEGER, seed INTEGER, status TEXT, text TEXT, finish_reason TEXT,
  probabilities BLOB, option_mass REAL, logprob_sum REAL, num_scored_tokens INTEGER,
  reward REAL, num_prompt_tokens INTEGER, num_completion_tokens INTEGER,
  num_shortened_tokens INTEGER, flags TEXT, error_kind TEXT, error TEXT,
  error_transient INTEGER, attempts INTEGER, seconds REAL, at REAL);
CREATE TABLE texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE INDEX responses_by_phase ON responses (iteration, phase, status);
CREATE TABLE duels (
  id TEXT PRIMARY KEY, iteration INTEGER, position INTEGER, instruction TEXT, left TEXT,
  right TEXT, matched TEXT, left_response TEXT, right_response TEXT) WITHOUT ROWID;
CREATE INDEX duels_by_iteration ON duels (iteration, position);
CREATE INDEX duels_by_left ON duels (left, iteration, position);
CREATE INDEX duels_by_right ON duels (right, iteration, position);
CREATE TABLE judgments (
  duel TEXT, judge TEXT, iteration INTEGER, protocol TEXT, score_left REAL, score_right REAL,
  reason TEXT, flipped INTEGER, raw TEXT, flags TEXT,
  requests TEXT, PRIMARY KEY (duel, judge));
CREATE INDEX judgments_by_iteration ON judgments (iteration);
CREATE TABLE outcomes (
  duel TEXT PRIMARY KEY, iteration INTEGER, status TEXT, winner TEXT, score_left REAL,
  score_right REAL, num_judges INTEGER, num_missing INTEGER, agreement REAL, reason TEXT
  ) WITHOUT ROWID;
CREATE INDEX outcomes_by_iteration ON outcomes (iteration);
CREATE INDEX outcomes_by_status ON outcomes (status, iteration);
CREATE TABLE bouts (
  id TEXT PRIMARY KEY, messages TEXT, left TEXT, right TEXT, left_version INTEGER,
  right_version INTEGER, left_text TEXT, right_text TEXT, at REAL);
CREATE TABLE labels (
  number INTEGER PRIMARY KEY, duel TEXT, person TEXT, verdict TEXT, swapped INTEGER,
  seconds REAL, note TEXT, at REAL);
CREATE INDEX labels_by_duel ON labels (duel, person, number);
CREATE TABLE reputations (
  iteration INTEGER, position INTEGER, duel TEXT, member TEXT, before REAL, after REAL,
  deviation REAL, PRIMARY KEY (iteration, position)) WITHOUT ROWID;
CREATE TABLE pairs (
  id TEXT PRIMARY KEY, iteration INTEGER, instruction TEXT, chosen TEXT, rejected TEXT,
  chosen_member TEXT, rejected_member TEXT, margin REAL, weight REAL, chosen_probability REAL,
  rejected_probability REAL, chosen_truncated INTEGER, rejected_truncated INTEGER, dropped TEXT);
CREATE INDEX pairs_by_instruction ON pairs (iteration, instruction);
CREATE TABLE demonstrations (
  iteration INTEGER, builder TEXT, position INTEGER, id TEXT, instruction TEXT, turn INTEGER,
  domain TEXT, history TEXT, prompt TEXT, response TEXT, writer TEXT, response_id TEXT,
  advantage REAL, truncated INTEGER, dropped TEXT, PRIMARY KEY (iteration, builder, position));
CREATE TABLE trials (
  number INTEGER PRIMARY KEY, rung INTEGER, design TEXT, num_items INTEGER, num_scored INTEGER,
  score REAL, low REAL, high REAL, calls INTEGER, tokens INTEGER, money REAL, new_calls INTEGER,
  note TEXT);
CREATE TABLE states (
  iteration INTEGER PRIMARY KEY, standings TEXT, reliability TEXT, faded TEXT, metrics TEXT,
  num_judged INTEGER);
CREATE TABLE trainings (
  iteration INTEGER, member TEXT, version INTEGER, num_examples INTEGER, num_dropped TEXT,
  summary TEXT, seconds REAL, at REAL, PRIMARY KEY (iteration, member)) WITHOUT ROWID;
CREATE TABLE training_steps (
  iteration INTEGER, member TEXT, step INTEGER, signals TEXT,
  PRIMARY KEY (iteration, member, step)) WITHOUT ROWID;
CREATE TABLE evaluations (
  iteration INTEGER, member TEXT, task TEXT, item TEXT, domain TEXT, split TEXT,
  correct INTEGER, readable INTEGER, score REAL, answer TEXT, reason TEXT, response TEXT,
  PRIMARY KEY (iteration, member, task, item)) WITHOUT ROWID;
CREATE TABLE games (
  iteration INTEGER, task TEXT, member TEXT, rival TEXT, item TEXT, judge TEXT, game TEXT,
  domain TEXT, label TEXT, value REAL, reason TEXT, length INTEGER, rival_length INTEGER,
  response TEXT, request TEXT,
  PRIMARY KEY (iteration, task, member, rival, item, judge, game)) WITHOUT ROWID;
CREATE TABLE phases (
  iteration INTEGER, phase TEXT, seconds REAL, asked INTEGER, at REAL,
  PRIMARY KEY (iteration, phase)) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL, kind TEXT, text TEXT);
"""


def create(path: Path) -> None:
    """Put an empty ledger there, whole or not at all: who is killed leaves none without tables."""
    new = path.with_name(f"{path.name}.new")
    for end in ("", "-journal", "-wal", "-shm"):  # of a start that was killed
        new.with_name(new.name + end).unlink(missing_ok=True)
    with closing(sqlite3.connect(new)) as db, db:
        # Here, not when it is opened: who is killed while a ledger changes to a log of this kind
        # leaves one that cannot be read before somebody writes to it.
        db.execute("PRAGMA journal_mode=WAL")
        # One transaction: by itself each statement waits for the disk, which is most of a start.
        db.executescript(f"BEGIN; {SCHEMA}")
        db.execute("INSERT INTO run VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
    os.replace(new, path)
