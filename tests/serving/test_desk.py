"""The desk: whose words are said, by whom they are written together, and what is left untouched."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import openai
import pytest

from phalanx.asking import start_facts
from phalanx.config.loading import shaped
from phalanx.errors import ConfigError, LedgerError
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.serving.counter import Counter
from phalanx.serving.desk import Unknown, open_desk
from phalanx.types import IterationResult, Member, Message, Sampling
from tests.scripts import write_pool
from tests.serving.conftest import RULES, client, endpoint

HELLO = (Message("user", "hello dog"),)
PHALANX = (sys.executable, "-c", "from phalanx.cli import main; main()")
GREEDY = Sampling(0, 1, 0, 12)


def rows(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def run(tiny_pool, tmp_path_factory) -> Path:
    """A run in which bob was trained: the base at its start, with an adapter after iteration 1;
    its dev items liked the start better."""
    folder = tmp_path_factory.mktemp("run") / "run"
    base, adapter = (str(tiny_pool.parent / name) for name in ("base", "adapter"))
    members = [Member("ada", base, dtype="float32"), Member("bob", base, dtype="float32")]
    config = shaped(
        "preset:sparta-small",
        {"pool.members": [{"name": m.name, "model": base, "dtype": "float32"} for m in members]},
    )
    with Ledger(run_ledger_path(folder), writable=True) as ledger:
        facts = start_facts(config, members, method="sparta", inputs="", iterations=1)
        ledger.record_start(facts, members, ())
        trained = Member("bob", base, adapter, version=1, dtype="float32")
        ledger.grow({}, [(1, trained)])
        ledger.record_iteration(1, IterationResult())
        with ledger.transaction():
            for number, name, score in (
                (0, "ada", 1.0), (0, "bob", 1.0), (1, "ada", 1.0), (1, "bob", 0.0),
            ):  # fmt: skip
                ledger.insert(
                    "evaluations",
                    {"iteration": number, "member": name, "task": "t", "item": "1", "split": "dev",
                     "correct": int(score), "readable": 1, "score": score, "domain": "",
                     "answer": "", "reason": "", "response": ""},
                )  # fmt: skip
        ledger.put("finished", "yes")
    return folder


def test_members_of_a_run_are_those_that_it_made(run, tiny_pool):
    before = rows(run_ledger_path(run))
    with open_desk(tiny_pool) as pool:
        plain, adapted = (pool.say(name, HELLO, GREEDY, 1).text for name in ("ada", "bob"))
    assert plain != adapted
    with open_desk(run) as desk:
        assert desk.members == ("ada", "bob")
        assert desk.names == desk.members  # two have nobody to vote
        assert desk.member("bob").version == 1
        assert desk.say("bob", HELLO, GREEDY, 1).text == adapted
        assert desk.say("bob@0", HELLO, GREEDY, 1).text == plain
        assert desk.say("bob", HELLO, GREEDY, 1).text == adapted
        with pytest.raises(Unknown, match="nobody called 'bob@7'"):
            desk.say("bob@7", HELLO, GREEDY, 1)
    for number in (0, "0", "best"):
        with open_desk(run, iteration=number) as desk:
            assert desk.member("bob").version == 0
    with pytest.raises(ConfigError, match="the run has 0 to 1"):
        open_desk(run, iteration=2).__enter__()
    assert rows(run_ledger_path(run)) == before


def test_every_fault_is_told_before_a_model_is_loaded(tmp_path, tiny_pool):
    with pytest.raises(ConfigError) as caught:
        open_desk(tiny_pool, members=["eve", "adda"]).__enter__()
    assert "'eve'" in str(caught.value)
    assert "did you mean" in str(caught.value)
    for wrong in ("majority", "self_consistency", "best_of_n"):
        with pytest.raises(ConfigError, match="collective"):
            open_desk(tiny_pool, collective=wrong).__enter__()
    with pytest.raises(ConfigError, match="there is no such run"):
        open_desk(tmp_path / "nothing").__enter__()
    with pytest.raises(LedgerError, match="no run in"):
        open_desk(tmp_path).__enter__()
    with pytest.raises(ConfigError, match="iteration 'best'"):
        open_desk(tiny_pool, iteration="best").__enter__()
    made = tmp_path / "pool.yaml"
    recruit = "{specialists: {ada: [arithmetic]}}"
    made.write_text(f"pool: {{base: 'builtin:smollm2-135m', recruit: {recruit}}}\n", "utf-8")
    with pytest.raises(ConfigError, match="recruits are made by a run"):
        open_desk(made).__enter__()


def test_what_show_raises_gives_the_text_up(tiny):
    heard: list[str] = []

    def show(piece: str) -> None:
        heard.append(piece)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny.desk.say("ada", HELLO, Sampling(1, 1, 0, 900), 3, show)
    assert len(heard) == 1
    began = time.monotonic()
    assert tiny.desk.say("ada", HELLO, GREEDY, 3).text is not None
    assert time.monotonic() - began < 5


def test_a_mixture_is_shown_while_its_aggregator_writes(tiny):
    shown: list[str] = []
    made = tiny.desk.say("collective", HELLO, Sampling(1, 1, 0, 24), 2, shown.append)
    assert made.error is None
    assert "".join(shown) == made.text
    assert len(shown) > 2
    assert made.text == tiny.desk.say("collective", HELLO, Sampling(1, 1, 0, 24), 2).text


# Behind an endpoint ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def relay(tiny, tmp_path_factory):
    """Members behind an endpoint, which is the other endpoint of these tests."""
    path = tmp_path_factory.mktemp("relay") / "config.yaml"
    path.write_text(
        f"endpoints: [{{name: e, url: '{tiny.url}'}}]\n"
        "pool:\n  members:\n"
        "    - {name: near, engine: openai, model: bob}\n"
        "    - {name: lost, engine: openai, model: eve}\n",
        encoding="utf-8",
    )
    with endpoint(path) as place:
        yield place


def test_a_member_behind_an_endpoint_is_passed_on(tiny, relay):
    wish = {"messages": [{"role": "user", "content": "hello dog"}], "temperature": 0,
            "max_tokens": 12}  # fmt: skip
    with client(tiny) as there, client(relay) as here:
        expected = there.chat.completions.create(
            model="bob", logprobs=True, top_logprobs=2, **wish
        ).choices[0]
        found = here.chat.completions.create(
            model="near", logprobs=True, top_logprobs=2, **wish
        ).choices[0]
        assert found.message.content == expected.message.content
        assert [token.logprob for token in found.logprobs.content] == pytest.approx(
            [token.logprob for token in expected.logprobs.content]
        )
        pieces = here.chat.completions.create(model="near", stream=True, **wish)
        texts = [choice.delta.content or "" for chunk in pieces for choice in chunk.choices]
        assert "".join(texts) == expected.message.content
        stop = expected.message.content[4:6]
        cut = here.chat.completions.create(model="near", stop=stop, **wish).choices[0]
        assert cut.message.content == expected.message.content.partition(stop)[0]
        with pytest.raises(openai.BadRequestError, match="reads no prompt as it is"):
            here.completions.create(model="near", prompt="the cat")
        with pytest.raises(openai.InternalServerError, match="does not know the model 'eve'"):
            here.chat.completions.create(model="lost", **wish)


def test_ten_at_once_are_passed_on(tiny, relay):
    expected = [tiny.desk.say("bob", HELLO, Sampling(0, 1, 0, n), 0).text for n in range(3, 13)]
    found: dict[int, str] = {}

    def one(n: int) -> None:
        found[n] = relay.desk.say("near", HELLO, Sampling(0, 1, 0, n), 0).text or ""

    threads = [threading.Thread(target=one, args=(n,)) for n in range(3, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [found[n] for n in range(3, 13)] == expected


# The counter -------------------------------------------------------------------------------------


def test_what_waits_for_the_same_is_served_together():
    served: list[tuple[str, list[int]]] = []
    first, go_on = threading.Event(), threading.Event()

    def serve(kind: str, things: list[int]) -> list[int]:
        served.append((kind, list(things)))
        first.set()
        assert go_on.wait(10)
        if kind == "bad":
            raise OSError("broken")
        return [2 * thing for thing in things]

    with Counter(serve, most=3) as counter:
        ahead = counter.put("a", 0)
        assert first.wait(10)
        wanted = [counter.put(kind, at) for at, kind in enumerate("bababbb", start=1)]
        broken = counter.put("bad", 9)
        go_on.set()
        assert [one.result(10) for one in (ahead, *wanted)] == [2 * at for at in range(8)]
        with pytest.raises(OSError, match="broken"):
            broken.result(10)
    assert served[:5] == [("a", [0]), ("b", [1, 3, 5]), ("a", [2, 4]), ("b", [6, 7]), ("bad", [9])]


def test_a_counter_that_closes_gives_up_what_waits():
    began, go_on = threading.Event(), threading.Event()

    def serve(kind: str, things: list[int]) -> list[int]:
        began.set()
        assert go_on.wait(10)
        return things

    counter = Counter(serve)
    with counter:
        running = counter.put("a", 1)
        assert began.wait(10)
        waiting = counter.put("b", 2)
        threading.Timer(0.2, go_on.set).start()
    assert running.result(0) == 1
    assert waiting.cancelled()
    assert counter.put("a", 3).cancelled()


# The command -------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_command_cleanly_with_a_text_under_way(tiny_pool):
    command = [*PHALANX, "serve-openai", tiny_pool, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            said = ""
            while "Base URL" not in said:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                said += line
            url = re.search(r"Base URL for clients: (\S+)", said)[1]
            assert "bob: " in said
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as talk:
                stream = talk.chat.completions.create(
                    model="bob", stream=True, max_tokens=900, temperature=2,
                    messages=[{"role": "user", "content": "hello dog"}],
                    n=8,
                )  # fmt: skip
                next(iter(stream))
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_an_address_that_is_taken_is_a_message(tmp_path, scripted):
    port = re.search(r":(\d+)/", scripted.root)[1]
    pool = write_pool(tmp_path, ["ada", "bob"], RULES)
    command = [*PHALANX, "serve-openai", pool, "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "choose another --port" in done.stderr


# Behind vLLM -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_members_behind_vllm_are_streamed_to_several_at_once(tiny_pool):
    """The server is that of the engine's own tests, which speaks as vLLM does."""
    config = shaped(
        str(tiny_pool),
        {"vllm.command": [sys.executable, "-m", "tests.server"],
         "pool.members": [
             {"name": "ada", "serve": "vllm"},
             {"name": "bob", "serve": "vllm", "adapter": str(tiny_pool.parent / "adapter")},
         ], "mixture": {}},
    )  # fmt: skip
    with endpoint(config) as place, client(place) as talk:
        wish = {"messages": [{"role": "user", "content": "hello dog"}], "max_tokens": 12,
                "temperature": 0}  # fmt: skip
        alone = {
            name: talk.chat.completions.create(model=name, **wish).choices[0].message.content
            for name in ("ada", "bob")
        }
        found: list[tuple[str, str]] = []

        def one(name: str) -> None:
            chunks = list(talk.chat.completions.create(model=name, stream=True, **wish))
            texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
            found.append((name, "".join(texts)))

        threads = [threading.Thread(target=one, args=(name,)) for name in ["ada", "bob"] * 5]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(found) == sorted([*alone.items()] * 5)
        stop = alone["bob"][3:5]
        cut = talk.chat.completions.create(model="bob", stop=stop, **wish).choices[0]
        assert cut.message.content == alone["bob"].partition(stop)[0]
        with pytest.raises(openai.BadRequestError, match="gives no log-probabilities"):
            talk.chat.completions.create(model="bob", logprobs=True, **wish)
        with pytest.raises(openai.BadRequestError, match="served by vLLM"):
            talk.completions.create(model="bob", prompt="the cat")
