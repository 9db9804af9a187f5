"""The in-process engine against brute force, on tiny random models."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from phalanx.engines import hf
from phalanx.engines.hf import HFEngine
from phalanx.errors import EngineError
from phalanx.types import Likelihood, Member, Message, Options, Request, Sampling
from phalanx.weights import Weights
from tests.tiny import make_adapter, make_tiny

SCORES = tuple(str(n) for n in range(1, 11))


@dataclasses.dataclass
class Pool:
    base: Member
    adapted: Member
    other: Member
    plain: Member


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Pool:
    home = tmp_path_factory.mktemp("engine")
    base = make_tiny(home / "llama")
    other = make_tiny(home / "gpt2", architecture="gpt2", template="no_system", context=256)
    plain = make_tiny(home / "qwen2", architecture="qwen2", template="plain")
    adapter = make_adapter(base, home / "adapter")
    return Pool(
        Member("base", str(base), dtype="float32"),
        Member("adapted", str(base), str(adapter), dtype="float32"),
        Member("other", str(other), dtype="float32"),
        Member("plain", str(plain), dtype="float32"),
    )


@pytest.fixture(scope="module")
def engine() -> HFEngine:
    return HFEngine(Weights(device="cpu", keep_all_loaded=True))


def ask(member, want, text="say hello", number=0, **options) -> Request:
    messages = (Message("user", text),)
    return Request(f"r{number}", member, messages, want, "test", **options)


def full_logprobs(engine, member, ids) -> torch.Tensor:
    with engine.weights.serving(member) as model, torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)


def members_of(pool) -> list[Member]:
    return [pool.base, pool.adapted, pool.other, pool.plain]


# Options


def brute_options(engine, member, text, want) -> tuple[dict[str, float], float]:
    """Walk every option token by token; at each node look at every option that goes through it."""
    chat = engine.weights.chat(member)
    prompt = chat.prompt_ids([Message("user", text)])
    paths = {option: chat.option_ids(want.prefix, option) for option in want.options}
    start = len(chat.option_ids(want.prefix, ""))
    raw: dict[str, float] = {}
    for option, path in paths.items():
        probability = 1.0
        for depth in range(start, len(path) + 1):
            same = [p for p in paths.values() if p[:depth] == path[:depth]]
            following = {p[depth] for p in same if len(p) > depth}
            ends = any(len(p) == depth for p in same)
            if len(following) + ends < 2:
                continue
            now = full_logprobs(engine, member, prompt + path[:depth])[-1].exp()
            going_on = sum(float(now[token]) for token in following)
            if depth == len(path):
                probability *= 1 - going_on
            else:
                probability *= float(now[path[depth]]) / (1.0 if ends else going_on)
        raw[option] = probability
    root = full_logprobs(engine, member, prompt + next(iter(paths.values()))[:start])[-1].exp()
    return raw, sum(float(root[token]) for token in {p[start] for p in paths.values()})


WANTS = [
    Options('{"score": ', SCORES),
    Options("", ("yes", "no")),
    Options("answer ", ("1", "10", "100", "2")),
    Options("", ("good response", "good dog", "bad")),
    Options("the answer is", (" A", " B")),
]


@pytest.mark.parametrize("want", WANTS, ids=lambda want: "/".join(want.options))
def test_options_match_brute_force(engine, pool, want):
    texts = ["say hello", "rate this response from 1 to 10 please, the cat sat on a mat"]
    for member in members_of(pool):
        asked = [ask(member, want, text, n) for n, text in enumerate(texts)]
        for text, response in zip(texts, engine.respond(asked), strict=True):
            wanted, mass = brute_options(engine, member, text, want)
            assert response.probabilities == pytest.approx(wanted, rel=1e-3, abs=1e-6)
            assert sum(response.probabilities.values()) == pytest.approx(1, abs=1e-9)
            assert response.option_mass == pytest.approx(mass, rel=1e-3)
            assert list(response.probabilities) == list(want.options)
            assert response.text is None
            assert response.error is None


def test_single_option_is_certain_and_its_mass_is_not(engine, pool):
    response = engine.respond([ask(pool.base, Options("", ("7",)))])[0]
    assert response.probabilities == {"7": 1.0}
    assert 0 < response.option_mass < 0.5


@pytest.mark.parametrize("options", [(), ("a", "a"), ("",)])
def test_impossible_options_are_refused(engine, pool, options):
    with pytest.raises(EngineError, match="option"):
        engine.respond([ask(pool.base, Options("", options))])


# Likelihood


def test_likelihood_matches_a_forward_pass_for_one(engine, pool):
    texts = ["hello cat", "the dog sat on a mat in town", "x"]
    for member in members_of(pool):
        chat = engine.weights.chat(member)
        asked = [ask(member, Likelihood(text), "say " * n, n) for n, text in enumerate(texts)]
        for request, text, got in zip(asked, texts, engine.respond(asked), strict=True):
            prompt = chat.prompt_ids(request.messages)
            tokens = chat.completion_ids(text, ended=False)
            rows = full_logprobs(engine, member, prompt + tokens)[len(prompt) - 1 : -1]
            wanted = sum(float(rows[i, token]) for i, token in enumerate(tokens))
            assert got.logprob_sum == pytest.approx(wanted, rel=1e-4)
            assert got.num_scored_tokens == len(tokens)
            assert got.num_prompt_tokens == len(prompt)


def test_empty_completion_is_a_failure_not_a_zero(engine, pool):
    response = engine.respond([ask(pool.base, Likelihood(""))])[0]
    assert response.error.kind == "empty"
    assert response.logprob_sum is None


# Sampling


def test_greedy_is_the_models_own_greedy(engine, pool):
    for member in members_of(pool):
        chat = engine.weights.chat(member)
        ids = chat.prompt_ids([Message("user", "say hello")])
        for _ in range(6):
            ids.append(int(full_logprobs(engine, member, ids)[-1].argmax()))
            if ids[-1] in chat.stop_ids:
                break
        want = Sampling(temperature=0, max_new_tokens=6)
        got = engine.respond([ask(member, want), ask(member, want, "x " * 30, 1)])[0]
        new = [token for token in ids[-6:] if token not in chat.stop_ids]
        assert got.text == chat.decode(new).replace("\x00", "\ufffd")


def test_response_depends_on_its_seed_and_not_on_its_batch_mates(engine, pool):
    want = Sampling(temperature=1, top_p=0.95, top_k=50, max_new_tokens=12)
    for member in members_of(pool):
        asked = [ask(member, want, "cat " * (n + 1), n, seed=100 + n) for n in range(6)]
        together = engine.respond(asked)
        alone = [engine.respond([request])[0] for request in asked]
        assert [r.text for r in together] == [r.text for r in alone]
        other = engine.respond([dataclasses.replace(r, seed=r.seed + 50) for r in asked])
        assert [r.text for r in other] != [r.text for r in together]
        assert len({r.text for r in together}) > 1


def test_settings_may_differ_within_a_batch(engine, pool):
    wants = [
        Sampling(temperature=0, max_new_tokens=9),
        Sampling(temperature=1, top_k=0, top_p=1, max_new_tokens=3),
        Sampling(temperature=0.5, top_k=5, top_p=0.5, max_new_tokens=6),
    ]
    asked = [ask(pool.base, want, number=n, seed=n) for n, want in enumerate(wants)]
    together = engine.respond(asked)
    assert [r.text for r in together] == [engine.respond([r])[0].text for r in asked]
    for response, want in zip(together, wants, strict=True):
        assert response.num_completion_tokens <= want.max_new_tokens
        if response.truncated:
            assert response.num_completion_tokens == want.max_new_tokens


def test_finish_reasons(engine, pool):
    want = Sampling(temperature=1.5, top_k=0, top_p=1, max_new_tokens=60)
    got = engine.respond([ask(pool.base, want, number=n, seed=n) for n in range(24)])
    assert {r.finish_reason for r in got} == {"stop", "length"}
    for response in got:
        full = response.num_completion_tokens == 60
        assert full == (response.finish_reason == "length")
        assert "<|im_end|>" not in response.text


def test_empty_text_is_an_empty_text(engine, pool, monkeypatch):
    chat = engine.weights.chat(pool.base)
    ids = chat.prompt_ids([Message("user", "say hello")])
    first = int(full_logprobs(engine, pool.base, ids)[-1].argmax())
    monkeypatch.setattr(chat, "stop_ids", (*chat.stop_ids, first))
    got = engine.respond([ask(pool.base, Sampling(temperature=0, max_new_tokens=5))])[0]
    assert (got.text, got.finish_reason, got.error) == ("", "stop", None)


# Planning


def mixed(pool) -> list[Request]:
    wants = [Sampling(max_new_tokens=4), Options("", ("1", "2")), Likelihood("hello")]
    who = [pool.base, pool.other, pool.adapted]
    pairs = itertools.product(range(4), wants, who)
    return [ask(m, w, "cat " * (7 * n % 5 + 1), k, seed=k) for k, (n, w, m) in enumerate(pairs)]


def test_plan_covers_each_request_once_with_one_member_and_kind_a_batch(engine, pool):
    asked = mixed(pool)
    batches = HFEngine(engine.weights, batch_size=3).plan(asked)
    assert sorted(at for batch in batches for at in batch) == list(range(len(asked)))
    assert max(map(len, batches)) == 3
    for batch in batches:
        assert len({(asked[at].member, asked[at].want.kind) for at in batch}) == 1
    order = list(dict.fromkeys(asked[batch[0]].member.name for batch in batches))
    assert order == ["base", "adapted", "other"]  # members of one base stand together


def test_plan_is_sorted_by_length_and_cut_by_tokens(engine, pool):
    asked = [
        ask(pool.base, Sampling(max_new_tokens=10), "cat " * (n % 4 * 9), n) for n in range(16)
    ]
    chat = engine.weights.chat(pool.base)
    small = HFEngine(engine.weights, batch_tokens=256)
    batches = small.plan(asked)
    lengths = [len(chat.prompt_ids(asked[at].messages)) for batch in batches for at in batch]
    assert lengths == sorted(lengths)
    for batch in batches:
        longest = max(len(chat.prompt_ids(asked[at].messages)) for at in batch)
        assert len(batch) * (longest + 10) <= 256 or len(batch) == 1
    assert len(batches) > 1


def test_resumed_run_forms_the_same_batches_and_the_same_responses(engine, pool):
    asked = mixed(pool)
    one, two = HFEngine(engine.weights, batch_size=5), HFEngine(engine.weights, batch_size=5)
    batches = one.plan(asked)
    assert batches == two.plan(asked)
    found = {}
    for batch in reversed(batches):
        for at, response in zip(batch, two.respond([asked[at] for at in batch]), strict=True):
            found[at] = response
    assert [found[at] for at in range(len(asked))] == one.respond(asked)
    for batch in batches:  # a planned batch is planned as itself
        assert two.plan([asked[at] for at in batch]) == [list(range(len(batch)))]


def test_responses_are_in_the_order_of_the_requests(engine, pool):
    asked = mixed(pool)
    assert [r.request_id for r in engine.respond(asked)] == [r.id for r in asked]


# What does not fit


def judge_request(member, judged, want, question="which is better?") -> Request:
    text = f"START {question}\n<<{judged}>>\nEND: answer with one word"
    return ask(member, want, text, shortenable=(judged,))


def test_long_judged_text_is_shortened_in_the_middle_and_the_tail_stays(engine, pool):
    judged = "HEAD " + "the cat sat on a mat " * 200 + " TAIL"
    want = Options("", ("yes", "no"))
    request = judge_request(pool.base, judged, want)
    seen = _prompts_of(engine, request)
    assert "HEAD the cat" in seen
    assert "TAIL>>\nEND: answer with one word" in seen
    assert "tokens left out …]" in seen
    response = engine.respond([request])[0]
    assert response.error is None
    assert response.num_shortened_tokens > 100
    assert f"[… {response.num_shortened_tokens} tokens" in seen
    chat = engine.weights.chat(pool.base)
    assert 512 - 60 < response.num_prompt_tokens <= 512 - 1
    assert response.num_prompt_tokens < len(chat.prompt_ids(request.messages))


def _prompts_of(engine, request) -> str:
    prompt = engine._prepare(0, request).prompt
    return engine.weights.tokenizer(request.member).decode(prompt.ids)


def test_longest_of_two_parts_is_shortened_first(engine, pool):
    long, short = "cat " * 600, "dog and town " * 5
    text = f"A: {long} B: {short} which?"
    request = ask(pool.base, Options("", ("A", "B")), text, shortenable=(short, long))
    seen = _prompts_of(engine, request)
    assert short in seen
    assert long not in seen


def test_two_equal_parts_share_the_loss(engine, pool):
    one, two = "cat " * 600, "dog " * 600
    request = ask(pool.base, Likelihood("x"), f"{one} or {two}", shortenable=(one, two))
    seen = _prompts_of(engine, request)
    assert seen.count("tokens left out") == 2
    assert seen.count("cat") > 10
    assert seen.count("dog") > 10


def test_too_long_without_shortenable_part_is_a_failure_with_both_numbers(engine, pool):
    long = "cat " * 600
    want = Sampling(max_new_tokens=20)
    good, bad = engine.respond([ask(pool.base, want, "hi"), ask(pool.base, want, long, 1)])
    assert good.error is None
    assert bad.error.kind == "too_long"
    assert "512" in bad.error.message
    assert "20 more" in bad.error.message
    assert bad.text is None
    unhelpful = ask(pool.base, want, f"yes {long}", 2, shortenable=("yes",))
    assert "was not enough" in engine.respond([unhelpful])[0].error.message


# Trouble


def test_out_of_memory_halves_the_batch(engine, pool, monkeypatch):
    sizes = []
    real = hf._options

    def short_of_memory(model, chat, jobs):
        sizes.append(len(jobs))
        if len(jobs) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return real(model, chat, jobs)

    asked = [ask(pool.base, Options("", ("1", "2")), "cat " * n, n) for n in range(5)]
    wanted = engine.respond(asked)
    monkeypatch.setattr(hf, "_options", short_of_memory)
    got = engine.respond(asked)
    assert sizes == [5, 2, 3, 1, 2]
    for response, expected in zip(got, wanted, strict=True):
        assert response.probabilities == pytest.approx(expected.probabilities, rel=1e-4)


def test_one_request_that_never_fits_in_memory_is_a_failure(engine, pool, monkeypatch):
    def never(model, chat, jobs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes")

    monkeypatch.setattr(hf, "_likelihood", never)
    response = engine.respond([ask(pool.base, Likelihood("x"))])[0]
    assert response.error.kind == "engine"
    assert "can't allocate memory" in response.error.message


def test_other_exceptions_name_the_member_and_the_batch(engine, pool, monkeypatch):
    def broken(model, chat, jobs):
        raise IndexError("boom")

    monkeypatch.setattr(hf, "_sample", broken)
    with pytest.raises(EngineError, match=r"adapted@0: a batch of 2 sampling .*IndexError: boom"):
        engine.respond([ask(pool.adapted, Sampling(max_new_tokens=4), number=n) for n in (1, 2)])


def test_broken_weights_do_not_become_numbers(engine, pool):
    weights = Weights(device="cpu")
    with weights.serving(pool.base) as model, torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    for want in (Options("", ("1", "2")), Likelihood("x")):
        with pytest.raises(EngineError, match="check its weights"):
            HFEngine(weights).respond([ask(pool.base, want)])
