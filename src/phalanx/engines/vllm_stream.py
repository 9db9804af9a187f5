"""One text from a vLLM server, shown while it is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phalanx.chat import clean_text
from phalanx.engines import vllm_asking as asking
from phalanx.engines.http_stream import Lines, data_of, event_of
from phalanx.engines.streaming import TokenStream
from phalanx.engines.vllm_asking import Body
from phalanx.engines.vllm_server import Server, http_client
from phalanx.engines.vllm_work import failure_of
from phalanx.types import Failure, Request, Response, Sampling

if TYPE_CHECKING:
    from phalanx.engines.vllm import VllmEngine


@dataclass
class _Written:
    """What the events of one stream amount to: the first choice of a reply in one piece."""

    watch: TokenStream
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: Any = None

    def take(self, event: Mapping[str, Any]) -> None:
        choices = event.get("choices")
        if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
            return
        choice = choices[0]
        self.finish = choice.get("finish_reason") or self.finish
        self.text += str(choice.get("text") or "")
        if isinstance(choice.get("token_ids"), list):
            self.ids += choice["token_ids"]
            self.watch(self.ids)
        elif not self.ids:  # a server from before return_token_ids
            self.watch.finish(clean_text(self.text)[0].rstrip("\ufffd"))

    @property
    def choice(self) -> dict[str, Any]:
        found = {"text": self.text, "finish_reason": self.finish}
        return {**found, "token_ids": self.ids} if self.ids else found


def stream(engine: VllmEngine, request: Request, show: Callable[[str], None]) -> Response:
    """Answer one Sampling request; the pieces joined are the response's text.

    Sent once, and once more where the server has lost the member's adapter: a person who waits
    asks again sooner than this would. Raises EngineError where the server is gone.
    """
    if not isinstance(request.want, Sampling):
        raise ValueError(f"only a Sampling request can be streamed, not {request.want.kind}")
    member, key = request.member, request.member.base_key
    server = engine.ready(key, lambda: False)
    chat = engine.texts.chat(member)
    job = asking.prepare(request, chat, engine.context(key, member), None)
    if isinstance(job, Failure):
        return Response(request.id, error=job)
    watch = TokenStream(chat, chat.stop_ids, show)
    for again in (False, True):
        name = engine.names(key, [member])[member]
        body = {**asking.sampling_body(job), "model": name, "stream": True}
        found, status = _ask(server, body, engine.settings.timeout, watch)
        if status != 404 or again:
            break
        engine.look_again(key)
    if isinstance(found, Failure):
        server.check_alive()
        return Response(request.id, error=found)
    broken = asking.broken_off(found.choice)
    if broken is not None:
        return Response(request.id, error=broken)
    response = asking.read_sampling(job, found.choice)
    watch.finish(response.text)
    return response


def _ask(
    server: Server, body: Body, timeout: float, watch: TokenStream
) -> tuple[_Written | Failure, int]:
    """What was written, or why it was not, and the status."""
    client = http_client()
    written = _Written(watch)
    url = f"{server.url}/v1/completions"
    try:
        with (
            client.Client(timeout=client.Timeout(timeout), trust_env=False) as session,
            session.stream("POST", url, json=body) as reply,
        ):
            if reply.status_code != 200:
                reply.read()
                return failure_of(reply), reply.status_code
            lines = map(Lines().take, itertools.chain(reply.iter_bytes(), [Lines.END]))
            for line in itertools.chain.from_iterable(lines):
                event = event_of(data_of(line))
                if event.get("error"):
                    text = f"the vLLM server broke the text off: {str(event['error'])[:300]}"
                    return Failure("engine", text, transient=True), 200
                written.take(event)
    except client.TimeoutException as error:
        text = f"no reply within {timeout:g} s (vllm.timeout): {type(error).__name__}"
        return Failure("timeout", text, transient=True), 0
    except client.TransportError as error:
        text = f"the connection failed: {type(error).__name__}: {error}"
        return Failure("engine", text, transient=True), 0
    if written.finish is None:
        text = "the vLLM server ended the stream before the text"
        return Failure("engine", text, transient=True), 200
    return written, 200
