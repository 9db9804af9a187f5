"""Whole runs with real (tiny) models in process: answering, judging, learning, measuring."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.errors import TrainingError
from phalanx.identity import derive_seed
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.loop import align
from phalanx.training import train_sft
from phalanx.types import Demonstration
from phalanx.workshop import Workshop
from tests.tiny import make_adapter, make_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    """Two models with other tokenizers and templates; the second one has no system role."""
    folder = tmp_path_factory.mktemp("bases")
    return {
        "chatml": make_tiny(folder / "chatml", seed=1, template="chatml"),
        "no_system": make_tiny(
            folder / "no_system", seed=2, template="no_system", words=["river", "stone", "cloud"]
        ),
    }


def configuration(members: list[dict], **more):
    settings = {
        "iterations": 2,
        "seed": 3,
        "pool.members": members,
        "instructions.source": "builtin:skills",
        "match.duels": 6,
        "answer.max_new_tokens": 8,
        "pairs.truncated": "allow",
        "pairs.keep": 1.0,
        "train.epochs": 1,
        "resources.threads": 1,
        "evaluate.tasks": [{"name": "skills", "source": "builtin:skills", "limit": 2}],
        "evaluate.max_new_tokens": 4,
    }
    return load("preset:sparta-small", {**settings, **more})


def test_two_contestants_with_other_tokenizers_and_templates(bases, tmp_path):
    """One of them has no system role although it is given a system prompt."""
    members = [
        {"name": "ada", "model": str(bases["chatml"]), "system": "Answer shortly."},
        {"name": "bob", "model": str(bases["no_system"]), "system": "Answer shortly."},
        {"name": "cora", "model": str(bases["chatml"]), "roles": ["judge"]},
    ]
    align(configuration(members), tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("responses", "status = 'failed'") == 0
        versions = {member.name: member.version for member in ledger.members()}
        assert versions == {"ada": 2, "bob": 2, "cora": 0}
        assert ledger.count("judgments", "judge = 'cora'") > 0
        assert ledger.count("judgments", "judge != 'cora'") == 0
        kept = ledger.count("pairs", "iteration = 1 AND dropped = ''")
        rows = ledger.query("SELECT member, num_examples FROM trainings WHERE iteration = 1")
        assert {row["member"] for row in rows} == {"ada", "bob"}
        assert all(row["num_examples"] == kept for row in rows)
    for number in (1, 2):
        for name in ("ada", "bob"):
            adapter = tmp_path / "run" / "adapters" / f"iteration-{number}" / name
            assert (adapter / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_chosen_responses_alone_are_learned(noise, bases, tmp_path):
    """Each learner's finished folder is that of ``train_sft`` on what was chosen, in full.

    A folder that was made from any other examples or settings is refused.
    """
    members = [{"name": name, "model": str(bases["chatml"])} for name in ("ada", "bob", "cora")]
    sft = {"sft.learning_rate": 1e-3, "sft.batch_size": 2, "train.label_noise": noise}
    config = configuration(members, **{"iterations": 1, "train.method": "sft", **sft})
    align(config, tmp_path / "run")
    side = "rejected" if noise else "chosen"
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger, Workshop(config) as shop:
        learned = [
            Demonstration(
                row["id"], row["text"], row[side], row["domain"], instruction=row["instruction"],
                writer=row[f"{side}_member"], truncated=bool(row[f"{side}_truncated"]),
            )
            for row in ledger.query(
                "SELECT p.*, i.text, i.domain FROM pairs p JOIN instructions i "
                "ON i.id = p.instruction WHERE p.dropped = '' ORDER BY p.id"
            )
        ]  # fmt: skip
        for member in ledger.members(0):
            folder = tmp_path / "run" / "adapters" / "iteration-1" / member.name
            seed = derive_seed("train", config.seed, 1, member.name)
            found = train_sft(
                shop.weights, member, learned, config.sft, folder, seed=seed, version=1
            )
            assert found.num_examples == len(learned) > 1
            assert found.member == next(m for m in ledger.members() if m.name == member.name)
            with pytest.raises(TrainingError):
                train_sft(
                    shop.weights, member, learned[1:], config.sft, folder, seed=seed, version=1
                )


@pytest.mark.parametrize("protocol", ["rubric", "expected", "pairwise"])
def test_prompted_protocols_run_on_real_models(protocol, bases, tmp_path):
    """A random model writes no readable verdict: everything is missing, nothing is invented."""
    members = [{"name": name, "model": str(bases["chatml"])} for name in ("ada", "bob", "cora")]
    config = configuration(
        members,
        **{
            "judge.protocol": protocol,
            "judge.max_unreadable": 1.0,
            "judge.max_new_tokens": 8,
            "train.method": "none",
            "iterations": 1,
            "evaluate.tasks": [],
        },
    )
    align(config, tmp_path / "run")
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("judgments") > 0
        readable = ledger.count("judgments", "score_left IS NOT NULL AND score_right IS NOT NULL")
        if protocol == "expected":
            assert readable == ledger.count("judgments")
        assert ledger.count("outcomes") == config.match.duels


def test_adapters_are_named_and_a_missing_one_is_refused(bases, tmp_path):
    """The base must never answer in place of an adapter that is not there."""
    from phalanx.errors import ConfigError

    make_adapter(bases["chatml"], tmp_path / "adapters" / "math", rank=2, seed=5)
    members = [
        {"name": "ada", "model": str(bases["chatml"]), "adapter": str(tmp_path / "adapters/math")},
        {"name": "bob", "model": str(bases["chatml"]), "adapter": str(tmp_path / "adapters/mtah")},
        {"name": "cora", "model": str(bases["chatml"])},
    ]
    with pytest.raises(ConfigError, match=r"mtah[\s\S]*math"):
        configuration(members)


def test_the_same_run_twice_gives_the_same_ledger_and_adapters(bases, tmp_path):
    members = [{"name": name, "model": str(bases["chatml"])} for name in ("ada", "bob", "cora")]
    found = []
    for name in ("one", "two"):
        align(configuration(members, iterations=1), tmp_path / name)
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            found.append(ledger.contents())
        found.append(
            [
                path.read_bytes()
                for path in sorted((tmp_path / name / "adapters").rglob("*.safetensors"))
            ]
        )
    assert found[0] == found[2]
    assert found[1] == found[3]


def test_training_in_processes_gives_what_training_here_gives(bases, tmp_path):
    members = [{"name": name, "model": str(bases["chatml"])} for name in ("ada", "bob", "cora")]
    found = []
    for name, workers in (("here", 1), ("apart", 2)):
        config = configuration(members, iterations=1, **{"resources.workers": workers})
        align(config, tmp_path / name)
        with Ledger(run_ledger_path(tmp_path / name)) as ledger:
            contents = ledger.contents()
            found.append({table: contents[table] for table in ("trainings", "training_steps")})
        found[-1]["adapters"] = [
            path.read_bytes()
            for path in sorted((tmp_path / name / "adapters").rglob("*.safetensors"))
        ]
    assert found[0] == found[1]
