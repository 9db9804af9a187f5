"""What arrives at the Hub, what does not, and a pool that starts from it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard, ModelCard
from ruamel.yaml import YAML
from typer.testing import CliRunner

from phalanx.cli import app
from phalanx.errors import ConfigError, HubError
from phalanx.handing import pull, push, write_parcel
from phalanx.handing.hub import look, send
from phalanx.handing.parcel import build
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.types import Member, TrainResult
from tests.handing.hub_server import READER
from tests.handing.runs import MEMBERS, SYSTEM, record
from tests.tiny import make_adapter, make_tiny

REPO = "me/pool"


def sent(hub, kind: str = "model") -> dict[str, bytes]:
    return hub.repos[kind, REPO].files


def test_everything_arrives_private_and_as_it_is_here(run, base, hub):
    seen = []

    def confirm(parcel, states) -> bool:
        seen.append([(s.repository.kind, s.visibility(False)) for s in states])
        assert not hub.repos, "nothing is sent before it was shown"
        return True

    addresses = push(run, REPO, confirm=confirm)
    assert addresses == [f"{hub.url}/{REPO}", f"{hub.url}/datasets/{REPO}"]
    assert seen == [[("model", "new, private"), ("dataset", "new, private")]]
    assert {key: repo.private for key, repo in hub.repos.items()} == {
        ("model", REPO): True, ("dataset", REPO): True,
    }  # fmt: skip
    model = sent(hub)
    assert sorted(model) == [
        "README.md", "ada/adapter_config.json", "ada/adapter_model.safetensors",
        "bob/adapter_config.json", "bob/adapter_model.safetensors", "cora/adapter_config.json",
        "cora/adapter_model.safetensors", "phalanx.json",
    ]  # fmt: skip
    for name in ("ada", "bob"):
        own = run / "adapters" / "iteration-1" / name / "adapter_model.safetensors"
        assert model[f"{name}/adapter_model.safetensors"] == own.read_bytes()
        settings = json.loads(model[f"{name}/adapter_config.json"])
        assert settings["base_model_name_or_path"] == base.name, "no place of this machine"
    rows = [json.loads(line) for line in sent(hub, "dataset")["preferences.jsonl"].splitlines()]
    assert len(rows) == 4
    assert all(row["prompt"][-1]["role"] == "user" for row in rows)
    everything = hub.everything()
    for place in (str(base), str(run), "/data/of/mine", str(Path.home()) + "/"):
        assert place.encode() not in everything, place
    assert SYSTEM.encode() in everything, "not marked, and needed to use the member"


def test_the_cards_are_valid_and_say_what_is_known(run, base, tmp_path):
    parcel = write_parcel(run, REPO, tmp_path / "parcel")
    model, rows = (one.folder for one in parcel.repositories)
    text = (model / "README.md").read_text("utf-8")
    card = ModelCard(text).data.to_dict()
    assert card["license"] == "mit", "read from the base's own card"
    assert (card["library_name"], card["pipeline_tag"]) == ("peft", "text-generation")
    assert card["datasets"] == [REPO]
    assert "base_model" not in card, "a folder here has no name there"
    assert 'PeftModel.from_pretrained(model, "me/pool", subfolder="ada")' in text
    assert f'base = "{base.name}"  # this base has no public name' in text
    assert "`phalanx pull me/pool`" in text
    assert f"Its system prompt:\n\n```text\n{SYSTEM}\n```" in text
    assert "beta: 0.2" in text
    assert "source: prompts.jsonl" in text, "a place loses all but its name"
    text = (rows / "README.md").read_text("utf-8")
    data = DatasetCard(text).data.to_dict()
    assert [one["config_name"] for one in data["configs"]] == ["preferences", "demonstrations"]
    assert "<script>" not in text.split("```")[0]
    assert "\u202e" not in text
    assert "\u0000" not in text
    import datasets

    for kind, count in (("preferences", 4), ("demonstrations", 4)):
        loaded = datasets.load_dataset(
            str(rows), kind, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert len(loaded) == count
    write_parcel(run, REPO, tmp_path / "named", ["share.bases={tiny-base: org/tiny}"])
    card = ModelCard((tmp_path / "named" / "model" / "README.md").read_text("utf-8"))
    assert card.data.to_dict()["base_model"] == ["org/tiny"]
    named = json.loads((tmp_path / "named" / "model" / "bob" / "adapter_config.json").read_bytes())
    assert named["base_model_name_or_path"] == "org/tiny"


def test_scores_stand_in_the_card_with_their_intervals(tmp_path):
    from phalanx.config.schema import Config
    from phalanx.handing.cards import Sent, model_card
    from phalanx.handing.private import Marks
    from phalanx.report.facts import gather
    from tests.report import fixture_run

    folder = fixture_run.build(tmp_path / "run", fixture_run.config(duels=24))
    with Ledger(run_ledger_path(folder)) as ledger:
        config = Config.model_validate(json.loads(ledger.get("config")))
        ada = ledger.members()[0]
        arguments = (ledger, config, Marks(ledger, config), [Sent(ada, "", False, ada)])
        text = model_card(*arguments, where=REPO)
        own = [c for c in gather(ledger).evaluation.changes if c.member == "ada"]
        config = Config.model_validate(
            {**config.model_dump(), "share": {"private": ["metrics", "config"]}}
        )
        hidden = model_card(
            ledger, config, Marks(ledger, config), [Sent(ada, "", False, ada)], where=REPO
        )
    card = ModelCard(text).data
    assert card.base_model == ["HuggingFaceTB/SmolLM2-135M-Instruct"]
    assert len(card.eval_results) == len(own) > 1
    by_domain = {one.dataset_name: one for one in card.eval_results}
    for change in own:
        name = change.domain or "all domains, each counting the same"
        result = by_domain[name]
        assert result.metric_value == round(change.after, 4)
        low, high = result.metric_args["interval_95"]
        assert low <= result.metric_value <= high
        assert result.metric_args["items"] == change.n
    assert ModelCard(hidden).data.eval_results is None
    assert "The settings are not published." in hidden
    assert "duels: 24" in text
    assert "rule: elo" in text, "the kind of a section is no default"
    assert "duels: 24" not in hidden


def test_what_is_marked_private_does_not_leave(run, hub, tmp_path, monkeypatch):
    secret = "sk-proj-" + "a1B2" * 8
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-mine-0123456789")
    (tmp_path / "kept.txt").write_text("WHAT is,  a CAT?\n", encoding="utf-8")
    marks = ["share.private=[system]", "share.domains=[talk]",
             f"share.sources=[{tmp_path / 'kept.txt'}]"]  # fmt: skip
    withheld = []

    def confirm(parcel, _) -> bool:
        withheld.extend(parcel.withheld)
        return True

    push(run, REPO, marks, confirm=confirm)
    everything = hub.everything().decode("utf-8", errors="replace").lower()
    for text in (SYSTEM, "what is a cat", "what is lima", secret):
        assert text.lower() not in everything, text
    assert "what is two" in everything, "the rest goes"
    rows = sent(hub, "dataset")["preferences.jsonl"].splitlines()
    assert [json.loads(row)["instruction_id"] for row in rows] == ["i0", "i3"]
    assert "1 preferences: each quotes a text that is marked private" in withheld
    assert "1 preferences: each is of the private domain talk" in withheld
    assert "the system prompt of ada: it is marked private" in withheld
    member = json.loads(sent(hub)["phalanx.json"])["members"][0]
    assert (member["system"], member["system_kept"]) == ("", True)
    assert "a system prompt, which is not published" in sent(hub)["README.md"].decode()
    card = sent(hub, "dataset")["README.md"].decode()
    assert "Left out: 1 (quotes a text that is marked private)" in card


def test_no_mark_of_the_run_is_taken_away_by_the_command(base, tmp_path):
    """Marks behind the command come on top; a file that moved is found under its name."""
    from phalanx.config.schema import Config

    (tmp_path / "kept.txt").write_text("what is a cat\n", encoding="utf-8")
    share = {"private": ["system"], "domains": ["talk"], "sources": ["gone/kept.txt"]}
    adapter = str(make_adapter(base, tmp_path / "adapter", seed=1))
    members = tuple(replace(one, base=str(base), adapter=adapter) for one in MEMBERS)
    config = Config.model_validate({"share": share}).model_dump_json()
    folder = record(tmp_path / "run", members=members, config=config)
    with pytest.raises(ConfigError, match=r"say where it is now: share\.sources=\[FOLDER/kept\.tx"):
        build(folder, REPO, tmp_path / "x")
    more = ["share.private=[config]", "share.domains=[]", f"share.sources=[{tmp_path}/kept.txt]"]
    build(folder, REPO, tmp_path / "parcel", overrides=more)
    everything = b"\n".join(
        path.read_bytes() for path in (tmp_path / "parcel").rglob("*") if path.is_file()
    ).decode("utf-8", errors="replace")
    for text in (SYSTEM, "what is lima", "what is a cat"):
        assert text not in everything, text
    assert "what is two" in everything
    assert "The settings are not published." in everything


@pytest.mark.parametrize(
    ("marks", "options", "message"),
    [
        (["share.private=[instructions]"], {"data": ["preferences"]},
         "preferences may not be sent: `share.private` has instructions"),
        (["share.private=[instructions]"], {"weights": "none"}, "nothing that may be sent"),
        (["share.members=[ada]"], {"members": ["ada"]}, "ada may not be sent"),
        (["share.members=[ada, bob, cora]", "share.private=[preferences, demonstrations]"], {},
         "ada: `share.members` names it"),
        (["share.sources=[nowhere.txt]"], {}, "nowhere.txt is not here"),
        (["train.beta=3"], {}, "only `share` can be set here"),
        ([], {"data": ["judgments"]}, "known are preferences, demonstrations and none"),
        ([], {"weights": "merge"}, "known are adapter, merged, none"),
    ],
)  # fmt: skip
def test_where_nothing_may_leave_it_says_why(run, hub, marks, options, message):
    with pytest.raises(ConfigError) as caught:
        push(run, REPO, marks, **options)
    assert message in str(caught.value)
    assert not hub.repos
    assert not hub.requests, "the Hub was not even asked"


def test_settings_lose_places_and_keys(tmp_path):
    from phalanx.config.schema import Config
    from phalanx.config.schema_sharing import ShareSettings
    from phalanx.handing.private import Marks
    from phalanx.handing.settings import shown_settings

    key = "sk-" + "abcDEF012345" * 2
    config = Config.model_validate(
        {
            "pool": {
                "members": [
                    {"name": "ada", "engine": "scripted", "model": "script:/srv/mine/a.yaml"},
                    {"name": "bob", "engine": "openai", "model": "m", "endpoint": "e",
                     "system": f"The key is {key}."},
                ],
            },
            "endpoints": [{"name": "e", "url": "http://10.0.0.7/v1", "extra": {"token": "t0p"}}],
            "instructions": {"source": "~/secret/prompts.jsonl"},
            "resources": {"ray": {"address": "ray://10.0.0.8:1"}},
        }
    )  # fmt: skip
    with Ledger(run_ledger_path(record(tmp_path / "run"))) as ledger:
        text = shown_settings(config, Marks(ledger, config))
    assert "script:a.yaml" in text
    assert "source: prompts.jsonl" in text
    assert "The key is [removed]." in text
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        short = config.model_copy(update={"share": ShareSettings(private=["system"])})
        short = Config.model_validate(
            {**short.model_dump(), "pool": {"members": [{"name": "ada", "system": "Be brief"}]}}
        )
        assert "Be brief" not in shown_settings(short, Marks(ledger, short))
    for hidden in (key, "/srv", "10.0.0", "t0p", "secret"):
        assert hidden not in text


def test_texts_and_names_of_every_kind_are_sent_whole(base, tmp_path):
    """Members called as files of the repository are, and a prompt that turns lines around."""
    from phalanx.config.schema import Config

    odd = "Hi \U0001f600 there \u202e\u2028\x85\x7f ```\n---\n# x"
    names = ("README.md", "Phalanx.json", "pool.yaml")
    adapter = str(make_adapter(base, tmp_path / "adapter", seed=1))
    members = tuple(Member(name, str(base), adapter, version=1, system=odd) for name in names)
    settings = {"pool": {"members": [{"name": name, "system": odd} for name in names]}}
    config = Config.model_validate(settings).model_dump_json()
    folder = record(tmp_path / "run", members=members, config=config)
    parcel = write_parcel(folder, REPO, tmp_path / "parcel")
    for one in parcel.repositories:
        text = (one.folder / "README.md").read_text("utf-8")
        assert not {"\u202e", "\u2028", "\x85", "\x7f"} & set(text)
        assert ModelCard(text).data.to_dict()["license"], "the first lines are the card's own"
        outside = re.sub(r"^(`{3,})\w+\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
        assert "```" not in outside
        assert outside.count("\n# ") == 1, "one title"
    path = pull([str(tmp_path / "parcel")], tmp_path / "pool", base=str(base))
    made = YAML(typ="safe").load(path.read_text("utf-8"))["members"]
    assert [one["name"] for one in made] == list(names)
    assert {one["system"] for one in made} == {odd}
    assert all((path.parent / one["adapter"] / "adapter_config.json").is_file() for one in made)


def test_what_was_there_before_is_told(run, hub):
    push(run, REPO)
    hub.repos["model", REPO].files |= {"old/model.bin": b"x", ".gitattributes": b"y"}
    told = []

    def confirm(parcel, states) -> bool:
        told.extend(state.stays for state in states)
        return True

    push(run, REPO, members=["ada"], data=["preferences"], confirm=confirm)
    folders = [f"{name}/adapter_{end}" for name in ("ada", "bob", "cora")
               for end in ("config.json", "model.safetensors")]  # fmt: skip
    assert told == [(*folders, "old/model.bin"), ("demonstrations.jsonl",)]
    done = CliRunner().invoke(app, ["push", str(run), REPO, "--yes", "--member", "ada"])
    assert (
        "There from before, and stays, in model me/pool: ada/adapter_config.json, " in done.output
    )
    assert " and 2 more" in done.output


def test_private_texts_are_found_by_their_words():
    from phalanx.handing.private import Texts

    texts = Texts(["The launch code, of Zebra", "Hi!", "秘密の言葉です", "a b c d e f g h i j k"])
    for text in (
        "so: THE *launch* code\\_of\n\nzebra.", "hi", "これは秘密の言葉ですね",
        "x a b c d e f g h i j k y", "the la\u00adunch c\u200bode of \uff3aebra",
        "the the launch code of zebra",
    ):  # fmt: skip
        assert texts.quoted_in(text), text
    for text in ("the launch code of a zebra", "hi there", "秘密の言葉", "a b c d e f g h i j", ""):
        assert not texts.quoted_in(text), text
    assert not texts.quoted_in("hi", short=False)
    assert Texts(["caf\u00e9 of my town"]).quoted_in("CAFE\u0301 of my town"), "one sign or two"
    assert not Texts(["", "..."])


def test_the_last_gate_looks_at_every_file(run, tmp_path, monkeypatch):
    """A card that quotes something private is refused, whatever wrote it there."""
    from phalanx.handing import parcel

    wrong = parcel.model_card

    def leaks(*args, **options):
        return wrong(*args, **options) + f"\nAnswer in ONE\\_word, please.\n{SYSTEM.upper()}"

    monkeypatch.setattr(parcel, "model_card", leaks)
    with pytest.raises(ConfigError, match=r"nothing is sent: model/README\.md quotes a text"):
        build(run, REPO, tmp_path / "x", overrides=["share.private=[system]"])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "correct horse battery")
    for number, key in enumerate((
        "hf_" + "abcdEFGH1234" * 3, "github_pat_" + "aB3_" * 9, "glpat-" + "aB3-" * 6,
        "-----BEGIN RSA PRIVATE KEY-----", "correct horse battery",
    )):  # fmt: skip
        monkeypatch.setattr(
            parcel, "model_card", lambda *a, key=key, **o: f"{wrong(*a, **o)}\n{key}"
        )
        with pytest.raises(ConfigError, match=r"model/README\.md holds an access key"):
            build(run, REPO, tmp_path / f"y{number}")


def test_refusals_are_told_in_clear_words(run, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(HubError, match=r"refused me/pool \(403.*the role write"):
        push(run, REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    with pytest.raises(HubError, match=r"\(401.*hf auth login"):
        push(run, REPO)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(HubError, match="there is no token"):
        push(run, REPO)
    assert not hub.repos
    for name in ("pool", "a/b/c", "me/po ol", "/etc", "me/.."):
        with pytest.raises(ConfigError, match="is no name of a repository"):
            push(run, name)


def test_a_public_repository_is_not_filled_unasked(run, hub):
    push(run, REPO, public=True)
    assert {repo.private for repo in hub.repos.values()} == {False}
    with pytest.raises(ConfigError, match="exists and is public"):
        push(run, REPO)
    assert {repo.commits for repo in hub.repos.values()} == {1}


def test_a_hub_that_does_not_answer_is_told(run, hub, tmp_path, monkeypatch):
    hub.fail["/lfs/"] = 403
    with pytest.raises(HubError, match=r"refused me/pool \(403: told to fail"):
        push(run, REPO)
    assert not sent(hub), "the folder was not committed in part"
    hub.fail.clear()
    assert len(push(run, REPO)) == 2
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match=r"me/pool: ConnectError.*look at the network"):
        push(run, REPO)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        push(run, REPO)


def test_a_run_behind_endpoints_sends_its_rows_alone(hub, tmp_path):
    members = tuple(replace(m, engine="openai", adapter=None, endpoint="e") for m in MEMBERS)
    folder = record(tmp_path / "run", members=members)
    assert push(folder, REPO) == [f"{hub.url}/datasets/{REPO}"]
    assert list(hub.repos) == [("dataset", REPO)]
    with pytest.raises(ConfigError, match="no weights of ada in this run"):
        push(folder, REPO, members=["ada"])


def test_a_member_of_which_all_weights_were_trained_goes_whole(base, tmp_path):
    folder = tmp_path / "run"
    whole = make_tiny(folder / "adapters" / "iteration-1" / "ada", seed=5)
    record(folder, members=(Member("ada", str(base)), Member("bob", str(base))))
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        trained = Member("ada", str(whole), version=1)
        ledger.record_training(1, TrainResult(trained, 3, {}, (), {}, 1.0))
    parcel = write_parcel(folder, REPO, tmp_path / "parcel")
    assert "bob: it is its base as it is" in parcel.withheld
    model = tmp_path / "parcel" / "model"
    (one,) = json.loads((model / "phalanx.json").read_text("utf-8"))["members"]
    assert (one["kind"], one["folder"], one["label"]) == ("merged", "", base.name)
    card = ModelCard((model / "README.md").read_text("utf-8")).data.to_dict()
    assert (card["library_name"], card["license"]) == ("transformers", "mit")
    from safetensors.torch import load_file

    ours, theirs = (load_file(place / "model.safetensors") for place in (whole, model))
    assert all((ours[name] == theirs[name]).all() for name in ours)
    path = pull([str(tmp_path / "parcel")], tmp_path / "pool")
    assert 'model: "ada"' in path.read_text("utf-8")


def test_what_broke_off_goes_on_and_nothing_is_sent_twice(run, hub, tmp_path):
    parcel = build(run, REPO, tmp_path / "parcel")
    hub.fail["/api/datasets/me/pool/commit"] = 403
    with pytest.raises(HubError, match=r"sent already: .*/me/pool; the same command goes on"):
        send(look(parcel.repositories))
    uploads, commits = list(hub.uploads), hub.repos["model", REPO].commits
    assert len(uploads) == 5
    assert not sent(hub, "dataset")
    hub.fail.clear()
    send(look(parcel.repositories))
    assert hub.uploads == uploads, "large files were there"
    assert hub.repos["model", REPO].commits == commits, "nothing had changed"
    assert sorted(sent(hub, "dataset")) == [
        "README.md", "demonstrations.jsonl", "preferences.jsonl",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="nothing that may be sent"):
        build(run, REPO, tmp_path / "none", weights="none", data=["none"])


def test_the_command_shows_what_goes_and_refuses_without_an_answer(run, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def phalanx(*words: str):
        return CliRunner().invoke(app, ["push", str(run), REPO, *words], input="y\n")

    refused = phalanx()
    assert isinstance(refused.exception, ConfigError)
    assert "nobody is here to answer" in str(refused.exception)
    assert "--out is for --dry-run" in str(phalanx("--yes", "--out", "x").exception)
    dry = phalanx("--dry-run", "--member", "ada")
    assert dry.exit_code == 0, dry.output
    assert "adapter_model.safetensors" in dry.output
    assert (tmp_path / "pool-push" / "model" / "adapter_config.json").is_file()
    again = phalanx("--dry-run", "--member", "bob,ada")
    assert again.exit_code == 0, again.output
    card = tmp_path / "pool-push" / "model" / "README.md"
    assert (card.parent / "bob" / "adapter_config.json").is_file()
    assert not (card.parent / "adapter_config.json").exists(), "the earlier one is replaced whole"
    whole = card.read_text("utf-8")
    card.write_text("my own words", "utf-8")
    refused = str(phalanx("--dry-run").exception)
    assert "changed since --dry-run wrote it: model/README.md; remove it" in refused
    assert card.read_text("utf-8") == "my own words"
    assert phalanx("--dry-run", "--out", "other").exit_code == 0
    (tmp_path / "other" / "dataset" / "notes.txt").write_text("mine", "utf-8")
    refused = str(phalanx("--dry-run", "--out", "other").exception)
    assert "dry-run wrote it: dataset/notes.txt" in refused
    (tmp_path / "other" / ".phalanx-push.json").write_text("{", "utf-8")
    assert "cannot be read" in str(phalanx("--dry-run", "--out", "other").exception)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text(whole, "utf-8")
    assert "is not of --dry-run" in str(phalanx("--dry-run", "--out", "mine").exception)
    assert not hub.requests
    done = phalanx("--yes", "--data", "none")
    assert done.exit_code == 0, done.output
    assert f"Model {REPO} (new, private): 8 files" in done.output
    assert f"Sent: {hub.url}/{REPO}" in done.output
    assert list(hub.repos) == [("model", REPO)]
