"""Log-probabilities of the endpoint are those of a plain forward pass."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.serving.conftest import client, endpoint


class Plain:
    """The model of transformers itself, with its adapter where it has one."""

    def __init__(self, base: Path, adapter: Path | None = None) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if adapter is not None:
            self.model = PeftModel.from_pretrained(self.model, adapter)
        self.model.eval()

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """[tokens - 1, vocabulary]: of each next token."""
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)


def check_text(plain: Plain, choice, ids: list[int], written: int, close: float) -> None:
    """Every number of a completion's logprobs, prompt included, against the plain pass."""
    whole = plain.logprobs(ids)
    found = choice.logprobs
    assert len(found.tokens) == len(ids)
    assert found.token_logprobs[0] is None
    for at in range(1, len(ids)):
        assert found.token_logprobs[at] == pytest.approx(float(whole[at - 1, ids[at]]), abs=close)
        best = max(found.top_logprobs[at].values())
        assert best == pytest.approx(float(whole[at - 1].max()), abs=close)
    assert written < len(ids)


@pytest.mark.parametrize("name", ["ada", "bob"])
def test_of_a_prompt_and_of_what_follows(tiny, tiny_pool, name):
    folder = tiny_pool.parent
    plain = Plain(folder / "base", folder / "adapter" if name == "bob" else None)
    prompts = ["the cat sat on a mat", "a small dog said héllo 42", "two"]
    ids = [plain.tokenizer(text)["input_ids"] for text in prompts]
    wish = {"model": name, "temperature": 0, "echo": True, "logprobs": 3}
    with client(tiny) as talk:
        by_text = talk.completions.create(prompt=prompts, max_tokens=5, **wish)
        by_ids = talk.completions.create(prompt=ids, max_tokens=5, **wish)
        one_more = talk.completions.create(prompt=ids, max_tokens=1, **wish)
        none = talk.completions.create(prompt=ids, max_tokens=0, **wish)
    for at, text in enumerate(prompts):
        whole = list(ids[at])
        for _ in range(5):
            logits = plain.model(torch.tensor([whole])).logits[0, -1]
            whole.append(int(logits.argmax()))
        choice = by_text.choices[at]
        count = len(choice.logprobs.tokens)
        check_text(plain, choice, whole[:count], count - len(ids[at]), 1e-4)
        check_text(plain, one_more.choices[at], whole[: len(ids[at]) + 1], 1, 1e-4)
        assert choice.text.startswith(text)
        assert by_ids.choices[at].text == choice.text
        assert by_ids.choices[at].logprobs.token_logprobs == pytest.approx(
            choice.logprobs.token_logprobs, abs=1e-5
        )
        assert none.choices[at].text == text
        assert len(none.choices[at].logprobs.tokens) == len(ids[at])
    assert by_text.usage.prompt_tokens == sum(map(len, ids))


def test_of_a_sampled_chat_answer(tiny, tiny_pool):
    plain = Plain(tiny_pool.parent / "base", tiny_pool.parent / "adapter")
    messages = [{"role": "user", "content": "hello dog"}]
    ids = plain.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True
    )["input_ids"]
    with client(tiny) as talk:
        made = talk.chat.completions.create(
            model="bob", messages=messages, seed=4, temperature=1.3, max_tokens=16, logprobs=True,
            top_logprobs=5,
        )  # fmt: skip
    assert made.usage.prompt_tokens == len(ids)
    content = made.choices[0].logprobs.content
    assert len(content) == made.usage.completion_tokens
    assert len(content) > 3
    names = {
        bytes_of(plain.tokenizer, id_): id_ for id_ in range(len(plain.tokenizer))
    }  # the tiny vocabulary has no two tokens of the same bytes
    written = [names[bytes(token.bytes)] for token in content]
    whole = plain.logprobs(ids + written)[len(ids) - 1 :]
    for at, token in enumerate(content):
        assert token.logprob == pytest.approx(float(whole[at, written[at]]), abs=1e-4)
        best = [entry.logprob for entry in token.top_logprobs]
        assert best == pytest.approx(whole[at].topk(5).values.tolist(), abs=1e-4)


def bytes_of(tokenizer, token: int) -> bytes:
    """By decoding between two letters: another way than the engine's."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {character: byte for byte, character in bytes_to_unicode().items()}
    return bytes(table[character] for character in tokenizer.convert_ids_to_tokens(token))


@pytest.mark.real
@pytest.mark.slow
def test_of_the_embedded_model(tmp_path):
    from phalanx.weights import resolve_model

    path = tmp_path / "config.yaml"
    path.write_text(
        "pool: {members: [{name: ada, model: 'builtin:smollm2-135m', dtype: float32}]}\n",
        encoding="utf-8",
    )
    plain = Plain(Path(resolve_model("builtin:smollm2-135m")))
    text = "The capital of Peru is Lima, and “naïve” has an ï; 2 + 2 = 4."
    ids = plain.tokenizer(text)["input_ids"]
    with endpoint(path) as place, client(place) as talk:
        made = talk.completions.create(
            model="ada", prompt=text, max_tokens=1, echo=True, logprobs=5, temperature=0
        ).choices[0]
    whole = plain.logprobs(ids)
    check_text(plain, made, [*ids, int(last(plain, ids))], 1, 1e-3)
    mine = math.fsum(made.logprobs.token_logprobs[1:-1])
    theirs = float(whole.gather(1, torch.tensor([ids[1:]]).T).sum())
    assert mine == pytest.approx(theirs, abs=1e-2)
    assert made.text.startswith(text)


def last(plain: Plain, ids: list[int]) -> int:
    with torch.no_grad():
        return int(plain.model(torch.tensor([ids])).logits[0, -1].argmax())
