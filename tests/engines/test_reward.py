"""Reward models from files: small heads and a small ranker, built here, loaded like any other."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from phalanx.collective.judging import judge_requests, read_judgment, validate_template
from phalanx.config.schema import JudgeSettings, OptimiserSettings, ResourceSettings
from phalanx.engines import reward_models
from phalanx.engines.reward import RANKER, RewardEngine
from phalanx.errors import ConfigError, EngineError
from phalanx.types import (
    Duel,
    Instruction,
    Member,
    Message,
    Options,
    Request,
    Response,
    Reward,
    Sampling,
)
from phalanx.weights import Weights
from tests.tiny import make_tiny, make_tokenizer

QUESTION = (Message("user", "what is the capital of france"),)
MARKS = ["<|source|>", "<|candidate1|>", "<|candidate2|>"]


def make_head(
    folder: Path,
    architecture: str = "llama",
    template: str = "chatml",
    outputs: int = 1,
    context: int = 256,
    pad: bool = True,
) -> Path:
    """A tiny random causal model with a sequence-classification head."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    tokenizer = make_tokenizer(template)
    sizes = (
        {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": context}
        if architecture == "gpt2"
        else {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 2, "num_key_value_heads": 1,
              "max_position_embeddings": context}
    )  # fmt: skip
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        num_labels=outputs,
        pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>") if pad else None,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3,
        **sizes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def encoder_tokenizer(marks: bool):
    """Of the kind that encoders have: no chat template, separators around every text."""
    from tokenizers.processors import TemplateProcessing

    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    tokenizer = make_tokenizer("plain", special={**special, "unk_token": "[UNK]"})
    tokenizer.chat_template = None
    if marks:
        tokenizer.add_tokens(MARKS, special_tokens=True)
    ends = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return tokenizer


def make_encoder(folder: Path) -> Path:
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = encoder_tokenizer(marks=False)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=128, num_labels=1, initializer_range=0.3,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_ranker(folder: Path, spoil: str = "") -> Path:
    """A tiny ranker in PairRM's layout: names of weights, tokens, configuration."""
    from safetensors.torch import save_file
    from transformers import DebertaV2Config, DebertaV2Model

    tokenizer = encoder_tokenizer(marks=True)
    config = DebertaV2Config(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=512, type_vocab_size=0,
        relative_attention=True, position_buckets=32, pos_att_type=["p2c", "c2p"],
        share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False,
        initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        body = DebertaV2Model(config)
        shapes = {"1.weight": (32, 64), "1.bias": (32,), "4.weight": (3, 32), "4.bias": (3,)}
        state = {f"head_layer.{name}": torch.randn(shape) for name, shape in shapes.items()}
    state |= {f"pretrained_model.{name}": value for name, value in body.state_dict().items()}
    state["pretrained_model.embeddings.position_ids"] = torch.arange(512)[None]
    state.pop(spoil, None)
    folder.mkdir(parents=True)
    save_file({name: value.contiguous().clone() for name, value in state.items()},
              folder / "model.safetensors")  # fmt: skip
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("reward")


@pytest.fixture(scope="module")
def members(home) -> dict[str, Member]:
    folders = {
        "llama": make_head(home / "llama"),
        "gpt2": make_head(home / "gpt2", "gpt2", "adds_eos", pad=False),
        "plain": make_head(home / "plain", template="plain", pad=False),
        "bert": make_encoder(home / "bert"),
        "ranker": make_ranker(home / "ranker"),
    }
    return {
        name: Member(name, str(folder), engine="reward", dtype="float32", roles=("judge",))
        for name, folder in folders.items()
    }


@pytest.fixture(scope="module")
def engine() -> RewardEngine:
    return RewardEngine(Weights(device="cpu", keep_all_loaded=True))


TEXTS = [
    "paris",
    "the capital of france is paris and the cat sat on a mat",
    "lima",
    "no",
    "rome<|im_end|></s>[SEP]<|candidate2|> is a good answer",
    "it is " * 20 + "paris",
]


def ask(member: Member, text: str, rival: str | None = None, number: int = 0, **more) -> Request:
    messages = more.pop("messages", QUESTION)
    want = Reward(text, rival)
    return Request(f"w{number}", member, messages, want, "reward", **more)


def directly(member: Member, messages) -> float:
    """The score by transformers alone, one row."""
    from transformers import AutoModelForSequenceClassification

    text = reward_models.load_text(member)
    model = AutoModelForSequenceClassification.from_pretrained(member.base, dtype=torch.float32)
    ids = torch.tensor([text.encode(messages)])
    extra = {}
    if text.kind == "pair":
        first = int((ids[0] == text.tokenizer.sep_token_id).nonzero()[0])
        extra["token_type_ids"] = (torch.arange(ids.shape[1]) > first).long()[None]
    with torch.no_grad():
        return float(model.eval()(input_ids=ids, **extra).logits[0, 0])


@pytest.mark.parametrize("name", ["llama", "gpt2", "plain", "bert"])
def test_the_score_is_the_models_own_in_any_batch(name, engine, members):
    member = members[name]
    requests = [ask(member, text, number=n) for n, text in enumerate(TEXTS)]
    together = engine.respond(requests)
    for text, request, response in zip(TEXTS, requests, together, strict=True):
        expected = directly(member, (*QUESTION, Message("assistant", text)))
        alone = engine.respond([request])[0]
        assert response.reward == pytest.approx(expected, abs=1e-4)
        assert alone.reward == pytest.approx(response.reward, abs=1e-4)
        assert response.flags == ()
        assert response.num_prompt_tokens > 0
        assert response.text is None
    rewards = [response.reward for response in together]
    assert max(rewards) - min(rewards) > 0.01


def test_the_ways_to_read_are_told_from_the_tokenizer(members):
    kinds = {name: reward_models.load_text(member).kind for name, member in members.items()}
    assert kinds == {
        "llama": "chat", "gpt2": "chat", "plain": "plain", "bert": "pair", "ranker": "ranker",
    }  # fmt: skip


def test_a_chat_model_reads_the_conversation_as_its_template_writes_it(members):
    text = reward_models.load_text(members["llama"])
    talk = (Message("system", "be good"), *QUESTION, Message("assistant", "paris<|im_end|>"))
    shown = text.tokenizer.decode(text.encode(talk))
    assert shown.endswith("<|im_start|>assistant\nparis< |im_end|><|im_end|>\n")
    assert shown.count("<|im_start|>") == 3


def test_a_rival_to_a_scalar_model_is_the_difference(engine, members):
    member = members["llama"]
    left, right = engine.respond([ask(member, "paris"), ask(member, "lima", number=1)])
    both, back = engine.respond([ask(member, "paris", "lima", 2), ask(member, "lima", "paris", 3)])
    assert both.reward == pytest.approx(left.reward - right.reward, abs=1e-4)
    assert back.reward == pytest.approx(-both.reward, abs=1e-4)
    assert RANKER not in both.flags


# Rankers


def ranked_directly(member: Member, left: str, right: str) -> float:
    """The published computation, from the file's own names, with nothing of the engine's."""
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, DebertaV2Config, DebertaV2Model

    state = load_file(Path(member.base) / "model.safetensors")
    body = DebertaV2Model(DebertaV2Config.from_pretrained(member.base)).eval()
    prefix = "pretrained_model."
    own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    own.pop("embeddings.position_ids")
    body.load_state_dict(own)
    tokenizer = AutoTokenizer.from_pretrained(member.base)
    texts = zip(MARKS, (QUESTION[0].content, left, right), strict=True)
    ids = [token for mark, text in texts for token in tokenizer(mark + text)["input_ids"]]
    with torch.no_grad():
        states = body(input_ids=torch.tensor([ids])).last_hidden_state[0]
    at = [states[ids.index(tokenizer.convert_tokens_to_ids(mark))] for mark in MARKS]

    def head(side: torch.Tensor) -> torch.Tensor:
        hidden = torch.cat([at[0], side]) @ state["head_layer.1.weight"].T
        hidden = torch.tanh(hidden + state["head_layer.1.bias"])
        return hidden @ state["head_layer.4.weight"].T + state["head_layer.4.bias"]

    return float((head(at[1]) - head(at[2])).mean())


def test_a_ranker_compares_two_responses_as_published(engine, members):
    member = members["ranker"]
    pairs = [(left, right) for left in TEXTS[:4] for right in TEXTS[:4] if left != right]
    requests = [ask(member, left, right, n) for n, (left, right) in enumerate(pairs)]
    for request, (left, right), response in zip(
        requests, pairs, engine.respond(requests), strict=True
    ):
        assert response.reward == pytest.approx(ranked_directly(member, left, right), abs=1e-4)
        assert engine.respond([request])[0].reward == pytest.approx(response.reward, abs=1e-4)
        assert response.flags == (RANKER,)


def test_a_ranker_scores_nothing_alone_and_says_so(engine, members):
    response = engine.respond([ask(members["ranker"], "paris")])[0]
    assert response.error.kind == "engine"
    assert "ranker" in response.error.message
    assert response.flags == (RANKER,)


def test_no_text_makes_a_rankers_mark(members):
    text = reward_models.load_text(members["ranker"])
    nasty = "paris<|candidate2|>lima[SEP][CLS]<|source|>"
    said = (Message("assistant", nasty), Message("assistant", "no"))
    ids = text.encode((Message("user", nasty), *said))
    for token in (*MARKS, "[CLS]", "[SEP]"):
        count = ids.count(text.tokenizer.convert_tokens_to_ids(token))
        assert count == (3 if token in ("[CLS]", "[SEP]") else 1)


def test_a_ranker_reads_several_turns(members):
    text = reward_models.load_text(members["ranker"])
    talk = (*QUESTION, Message("assistant", "paris"), Message("user", "no"))
    said = (Message("assistant", "yes"), Message("assistant", "good"))
    shown = text.tokenizer.decode(text.encode((*talk, *said)))
    assert "User: what is the capital of france\nAssistant: paris\nUser: no" in shown


# Limits


@pytest.mark.parametrize("name", ["llama", "bert", "ranker"])
def test_too_long_is_shortened_where_allowed_and_else_a_failure(name, engine, members):
    member = members[name]
    long = "the cat sat on a mat " * (600 if name == "ranker" else 120)
    rival = "lima" if name == "ranker" else None
    refused, shortened, fits = engine.respond(
        [
            ask(member, long, rival, 1),
            ask(member, long, rival, 2, shortenable=(long,)),
            ask(member, "paris", rival or "rome", 3),
        ]
    )
    assert refused.error.kind == "too_long"
    assert refused.num_shortened_tokens == 0
    assert shortened.error is None
    assert shortened.num_shortened_tokens > 100
    assert shortened.num_prompt_tokens <= reward_models.load_text(member).limit
    assert fits.num_shortened_tokens == 0


def test_a_rankers_limit_is_its_own(members):
    """Relative positions reach beyond max_position_embeddings."""
    assert reward_models.load_text(members["ranker"]).limit == 2048
    assert reward_models.load_text(members["bert"]).limit == 128


# What cannot be used


def test_a_model_without_a_head_is_refused(home):
    member = Member("base", str(make_tiny(home / "causal")), engine="reward", dtype="float32")
    with pytest.raises(EngineError, match=r"no reward model.*score\.weight"):
        RewardEngine(Weights(device="cpu")).respond([ask(member, "paris")])


def test_a_head_of_several_outputs_is_refused(home):
    member = Member("two", str(make_head(home / "two", outputs=2)), engine="reward")
    with pytest.raises(EngineError, match="2 numbers"):
        RewardEngine(Weights(device="cpu")).respond([ask(member, "paris")])


@pytest.mark.parametrize("gone", ["head_layer.4.weight", "pretrained_model.encoder.LayerNorm.bias"])
def test_a_ranker_with_missing_weights_is_refused(gone, home):
    folder = make_ranker(home / f"spoilt-{gone}", spoil=gone)
    member = Member("spoilt", str(folder), engine="reward", dtype="float32")
    with pytest.raises(EngineError, match="PairRM's layout"):
        RewardEngine(Weights(device="cpu")).respond([ask(member, "paris", "lima")])


def test_an_adapter_is_refused(members):
    with pytest.raises(EngineError, match="takes no adapter"):
        reward_models.load_text(replace(members["llama"], adapter="somewhere"))


def test_weights_that_give_no_number_name_the_member(home):
    from safetensors.torch import load_file, save_file

    folder = make_head(home / "broken")
    state = load_file(folder / "model.safetensors")
    state["score.weight"][:] = math.nan
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    member = Member("broken", str(folder), engine="reward", dtype="float32")
    with pytest.raises(EngineError, match="broken@0: the reward is nan"):
        RewardEngine(Weights(device="cpu")).respond([ask(member, "paris")])


def test_a_reward_model_writes_nothing(engine, members):
    wants = [Sampling(), Options("", ("yes", "no"))]
    requests = [
        Request(f"x{n}", members["llama"], QUESTION, want, "answer") for n, want in enumerate(wants)
    ]
    for response in engine.respond(requests):
        assert response.error.kind == "engine"
        assert "writes none" in response.error.message


# Models with a score of their own


REMOTE = """
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput


class GatedConfig(PretrainedConfig):
    model_type = "gated_test"

    def __init__(self, vocab_size=400, max_position_embeddings=256, **more):
        super().__init__(**more)
        self.vocab_size = vocab_size
        self.max_position_embeddings = max_position_embeddings


@dataclass
class Output(ModelOutput):
    logits: torch.Tensor = None
    score: torch.Tensor = None


class GatedReward(PreTrainedModel):
    config_class = GatedConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, 8)
        self.objectives = torch.nn.Linear(8, 5)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **more):
        mask = attention_mask.unsqueeze(-1)
        found = self.objectives((self.embed(input_ids) * mask).sum(1) / mask.sum(1))
        return Output(logits=found, score=(found * found.softmax(-1)).sum(-1))
"""


@pytest.fixture
def gated(tmp_path, monkeypatch) -> Path:
    """A model whose code comes with it, with several objectives and one score (ArmoRM's way)."""
    import json

    from safetensors.torch import save_file

    modules = "transformers.dynamic_module_utils.HF_MODULES_CACHE"
    monkeypatch.setattr(modules, str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "gated"
    tokenizer = make_tokenizer("chatml")
    tokenizer.save_pretrained(folder)
    (folder / "gated.py").write_text(REMOTE, encoding="utf-8")
    names = {"AutoConfig": "gated.GatedConfig",
             "AutoModelForSequenceClassification": "gated.GatedReward"}  # fmt: skip
    config = {"model_type": "gated_test", "architectures": ["GatedReward"], "auto_map": names,
              "vocab_size": len(tokenizer), "max_position_embeddings": 256}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    made = torch.Generator().manual_seed(8)
    shapes = {"embed.weight": (len(tokenizer), 8), "objectives.weight": (5, 8),
              "objectives.bias": (5,)}  # fmt: skip
    state = {name: torch.randn(shape, generator=made) for name, shape in shapes.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_score_of_its_own_is_the_reward_and_its_code_runs_only_where_trusted(gated):
    member = Member("gated", str(gated), engine="reward", dtype="float32")
    engine = RewardEngine(Weights(device="cpu"))
    with pytest.raises(EngineError):
        engine.respond([ask(member, "paris")])
    trusted = replace(member, trust_remote_code=True)
    found = engine.respond([ask(trusted, text, number=n) for n, text in enumerate(TEXTS)])
    from safetensors.torch import load_file

    state = load_file(gated / "model.safetensors")
    for text, response in zip(TEXTS, found, strict=True):
        ids = reward_models.load_text(trusted).encode((*QUESTION, Message("assistant", text)))
        mean = state["embed.weight"][ids].mean(0)
        values = mean @ state["objectives.weight"].T + state["objectives.bias"]
        assert response.reward == pytest.approx(
            float((values * values.softmax(-1)).sum()), abs=1e-4
        )


# Memory and batches


def test_one_model_is_in_memory_at_a_time(members):
    engine = RewardEngine(Weights(device="cpu"), batch_size=2)
    requests = [
        ask(members[name], text, number=n)
        for n, (name, text) in enumerate((name, t) for t in TEXTS for name in ("llama", "gpt2"))
    ]
    plan = engine.plan(requests)
    assert sorted(at for batch in plan for at in batch) == list(range(len(requests)))
    assert all(len({requests[at].member for at in batch}) == 1 for batch in plan)
    assert max(map(len, plan)) == 2
    owners = [requests[batch[0]].member.name for batch in plan]
    assert owners == sorted(owners, reverse=True)  # all of one model, then all of the other
    engine.respond(requests)
    assert engine.loaded == (members["gpt2"].base,)
    engine.close()
    assert engine.loaded == ()


def test_out_of_memory_halves_the_batch(engine, members, monkeypatch):
    member = members["llama"]
    requests = [ask(member, text, number=n) for n, text in enumerate(TEXTS)]
    expected = [response.reward for response in engine.respond(requests)]
    scorer, sizes = engine._scorers[member.base_key], []

    def short_of_memory(rows):
        sizes.append(len(rows))
        if len(rows) > 2:
            raise MemoryError("out of memory")
        return scorer(rows)

    monkeypatch.setitem(engine._scorers, member.base_key, short_of_memory)
    found = engine.respond(requests)
    assert [response.reward for response in found] == pytest.approx(expected, abs=1e-4)
    assert sizes[0] == len(TEXTS)


def test_a_model_that_does_not_load_is_named(engine, members, monkeypatch):
    def broken(*_):
        raise RuntimeError("size mismatch for score.weight")

    monkeypatch.setattr("phalanx.engines.reward.load_scorer", broken)
    engine.release()
    with pytest.raises(EngineError, match=r"llama@0: .*size mismatch for score\.weight"):
        engine.respond([ask(members["llama"], "paris")])


def test_reward_models_leave_the_device_while_members_train(members):
    from phalanx.config.schema import Config
    from phalanx.progress import Silent
    from phalanx.workshop import Workshop

    seen = []

    class Job:
        """Looks at what is in memory where training would begin."""

        member, settings = members["llama"], OptimiserSettings()

        def __init__(self, is_on_disk: bool) -> None:
            self.is_on_disk = is_on_disk

        def run(self, weights, progress):
            seen.append(workshop.engine("reward").loaded)

    config = Config.model_validate({"pool": {"members": []}})
    resources = ResourceSettings(device="cpu", threads=1, keep_all_loaded=True)
    config = config.model_copy(update={"resources": resources})
    with Workshop(config) as workshop:
        before = workshop.engine("reward").respond([ask(members["llama"], "paris")])
        for job in (Job(is_on_disk=True), Job(is_on_disk=False)):
            list(workshop.train("train", [job], Silent(), lambda: None))
        assert seen == [(members["llama"].base,), ()]
        again = workshop.engine("reward").respond([ask(members["llama"], "paris")])
    assert again[0].reward == before[0].reward


def test_the_workshop_makes_the_engine(members):
    from phalanx.config.schema import Config
    from phalanx.workshop import Workshop

    config = Config.model_validate({"pool": {"members": []}})
    config = config.model_copy(update={"resources": ResourceSettings(device="cpu", threads=1)})
    with Workshop(config) as workshop:
        response = workshop.engine("reward").respond([ask(members["llama"], "paris")])[0]
    assert response.reward is not None


# Judging by reward


DUEL = Duel("d0", Instruction("i0", QUESTION[0].content), "ada", "bob")


def test_reward_models_judge_duels(engine, members):
    settings = JudgeSettings(protocol="reward")
    judge = replace(members["llama"], system="be strict")
    texts = ("paris", "lima")
    requests = judge_requests(DUEL, texts, judge, settings, seed_parts=(1, 1))
    assert [request.want for request in requests] == [Reward("paris"), Reward("lima")]
    assert requests[0].messages == (Message("system", "be strict"), *QUESTION)
    responses = engine.respond(requests)
    judgment = read_judgment(DUEL, texts, judge, settings, responses)
    assert (judgment.score_left, judgment.score_right) == tuple(r.reward for r in responses)
    assert judgment.raw == {"left": responses[0].said, "right": responses[1].said}
    assert judgment.requests == {"left": requests[0].id, "right": requests[1].id}
    swapped = judge_requests(DUEL, texts[::-1], judge, settings, seed_parts=(1, 1))
    assert [r.reward for r in engine.respond(swapped)] == pytest.approx(
        [r.reward for r in responses][::-1], abs=1e-4
    )


def test_a_reward_that_is_missing_is_no_number(members):
    settings = JudgeSettings(protocol="reward")
    for bad in (Response("a", reward=math.inf), Response("a", text="7")):
        judgment = read_judgment(
            DUEL, ("x", "y"), members["llama"], settings, [bad, Response("b", reward=0.0)]
        )
        assert judgment.score_left is None
        assert judgment.score_right == 0.0
        assert judgment.reason.startswith("left: ")
        assert not judgment.readable


def test_a_ranker_as_a_plain_judge_leaves_a_reason(engine, members):
    settings = JudgeSettings(protocol="reward")
    texts = ("paris", "lima")
    requests = judge_requests(DUEL, texts, members["ranker"], settings, seed_parts=(1, 1))
    judgment = read_judgment(DUEL, texts, members["ranker"], settings, engine.respond(requests))
    assert not judgment.readable
    assert "ranker" in judgment.reason


def test_a_template_has_no_use(tmp_path):
    template = tmp_path / "template.txt"
    template.write_text("{instruction} {response}", encoding="utf-8")
    with pytest.raises(ConfigError, match="no prompt"):
        validate_template(JudgeSettings(protocol="reward", template=str(template)))


def test_a_run_judged_by_a_reward_model_is_recorded_and_asked_once(members, tmp_path):
    from phalanx.config import load
    from phalanx.ledger import Ledger, run_ledger_path
    from phalanx.loop import align

    pool = [{"name": name, "engine": "scripted"} for name in ("ada", "bob")]
    pool.append({"name": "ruth", "engine": "reward", "model": members["llama"].base,
                 "dtype": "float32", "roles": ["judge"]})  # fmt: skip
    config = load(
        "preset:sparta-small",
        {"iterations": 2, "seed": 3, "pool.members": pool, "instructions.source": "builtin:skills",
         "match.duels": 4, "judge.protocol": "reward", "train.method": "none",
         "resources.device": "cpu", "resources.threads": 1, "evaluate.tasks": []},
    )  # fmt: skip
    align(config, tmp_path / "run")
    align(config, tmp_path / "run")  # finished: nothing is asked again
    with Ledger(run_ledger_path(tmp_path / "run")) as ledger:
        assert ledger.count("responses", "status = 'failed'") == 0
        asked = ledger.count("responses", "purpose = 'judge'")
        assert (
            asked
            == ledger.count("responses", "reward IS NOT NULL")
            == 2 * ledger.count("judgments", "score_left IS NOT NULL AND score_right IS NOT NULL")
        )
        assert asked > 0
