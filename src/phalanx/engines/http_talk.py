"""One request of one member, spoken with its server: adapted, read, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from phalanx.chat import clean_text
from phalanx.engines import http_options as options
from phalanx.engines.http_account import costs
from phalanx.engines.http_body import adaptation, build, named_in, sampling_fields
from phalanx.engines.http_endpoint import FORBIDDEN, Endpoint, GaveUp
from phalanx.engines.http_reading import Completion, Reading, Token, read_completion, read_usage
from phalanx.engines.http_stream import FIELDS, Listener
from phalanx.types import Failure, Message, Options, Request, Response, Sampling

T = TypeVar("T")
# Beginnings of several options that one request asks about in further requests.
_MOST_FOLLOW_UPS = 4
# Errors of the server that end a way of asking which it may not know.
_PROBING_ERRORS = 3


class Talk:
    """Turns a request into bodies and the replies into its response.

    ``options_tokens`` is the most that may be written, reasoning included, before an option;
    ``epoch`` is the gate's, entered by the caller for the first body; ``listener`` hears a text
    while it is written. ``more`` are further fields of a body that samples; where they ask for
    log-probabilities, ``tokens`` has them afterwards. The tokens of everything that was sent for
    the request are added up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        options_tokens: int,
        stopped: Callable[[], bool],
        epoch: int | None,
        listener: Listener | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.request = request
        self.model = request.member.base
        self._options_tokens = options_tokens
        self._stopped = stopped
        self._epoch = epoch
        self._listener = listener
        self._more = more or {}
        self.tokens: tuple[Token, ...] = ()
        self._tokens_in = 0
        self._tokens_out = 0
        self._failed_once = asyncio.Event()

    async def taught(self, task: asyncio.Task[None], seconds: float) -> None:
        """Wait, ``seconds`` at most, for what a model's first request teaches about the server.

        A first try that came to nothing taught nothing, and the rest need not wait for its next
        one, unless a way of asking for options is still to be found.
        """
        waiting = [task]
        if isinstance(self.request.want, Sampling):
            waiting.append(asyncio.create_task(self._failed_once.wait()))
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for other in waiting[1:]:
            other.cancel()

    def release(self) -> None:
        """Give the gate's place back where nothing was sent after all."""
        if self._epoch is not None:
            self._epoch = None
            self.endpoint.gate.leave()

    async def answer(self) -> Response:
        """The response; a failure of this request alone is in its ``error``."""
        want = self.request.want
        try:
            if isinstance(want, Sampling):
                return await self._sampled(want)
            assert isinstance(want, Options)
            return await self._chosen(want)
        except GaveUp as gave_up:
            return self._response(error=gave_up.failure)

    # Sampling ------------------------------------------------------------------------------------

    async def _sampled(self, want: Sampling) -> Response:
        fields = sampling_fields(want, self.request.seed) | self._more
        if self._listener is not None:
            fields |= FIELDS
        reading = await self._say(self.request.messages, fields)
        if reading.verdict == "wrong":
            return self._response(error=self._refusal(reading))
        completion = self._read(reading, want.max_new_tokens)
        if completion.failure:
            return self._response(error=completion.failure, flags=completion.flags)
        self.tokens = completion.tokens
        shown = self._listener.finish(completion.text) if self._listener else ()
        return self._response(
            text=completion.text,
            finish_reason=completion.finish_reason,
            flags=(*completion.flags, *shown),
        )

    # Options -------------------------------------------------------------------------------------

    async def _chosen(self, want: Options) -> Response:
        """Ask in the way that the server is known to understand, or find it out.

        After errors that may have passed by now a later way is taken, but not for good.
        """
        failure = Failure(
            "refused",
            f"{self.endpoint.title} takes none of the ways of asking {self.model} for options that "
            f"endpoints.{self.endpoint.name}.options: {self.endpoint.settings.options} allows",
        )
        doubted: list[str] = []
        for mode in modes_for(self.endpoint, self.model):
            try:
                found = await self._in_mode(mode, want, learn=not doubted)
            except GaveUp as gave_up:
                if not (self._probing(mode) and gave_up.by_errors):
                    raise
                doubted.append(mode)
                found = gave_up.failure
            if isinstance(found, Response):
                for one in doubted if found.error is None else ():
                    self.endpoint.doubt_mode(self.model, one)
                return found
            failure = found
        return self._response(error=failure)

    def _proven(self, mode: str) -> bool:
        return self.endpoint.spent.capabilities.get(self.model) == mode

    def _probing(self, mode: str) -> bool:
        """Whether the server may not know this way of asking."""
        return bool(options.needs(mode)) and not self._proven(mode)

    async def _in_mode(self, mode: str, want: Options, learn: bool) -> Response | Failure:
        """The response, or a failure that another mode may not have."""
        limit = self._options_tokens
        messages, fields = options.asking(mode, want, self.request.messages, limit)
        most_errors = _PROBING_ERRORS if self._probing(mode) else None
        reading = await self._say(messages, fields, options.needs(mode), most_errors)
        if reading.verdict == "wrong":
            if named_in(reading, fields) in options.needs(mode):
                self.endpoint.refuse_mode(self.model, mode)
            failure = self._refusal(reading, f" (asked for {options.IN_WORDS[mode]})")
            final = reading.too_long or reading.cause == FORBIDDEN
            return self._response(error=failure) if final else failure
        completion = self._read(reading, fields["max_tokens"], "judge.max_new_tokens")
        if completion.failure and (
            completion.failure.kind != "empty" or completion.reasoned or not completion.tokens
        ):
            # Where the model wrote by itself, another way gives it no more room.
            final = completion.failure.kind == "refused" or (
                completion.failure.kind == "truncated" and mode != "prefill"
            )
            return self._response(error=completion.failure) if final else completion.failure
        proven = self._proven(mode)
        found = self._guarded(lambda: options.read_options(mode, want, completion, proven=proven))
        if isinstance(found, str):
            return Failure("unreadable", f"{self.endpoint.title}, {self.model}: {found}")
        if found.open and mode == "prefill":
            found = await self._followed_up(want, completion, found)
        if found.mass < options.LEAST_MASS:
            return Failure("unreadable", f"{self.endpoint.title}: no option has a probability")
        if learn:
            self.endpoint.learn_mode(self.model, mode, options.IN_WORDS[mode])
        return self._response(
            probabilities=found.probabilities,
            option_mass=found.mass,
            flags=(*completion.flags, *found.flags),
        )

    async def _followed_up(
        self, want: Options, completion: Completion, found: options.OptionReading
    ) -> options.OptionReading:
        """Ask what follows beginnings that several options share, such as "1" of "1" and "10".

        Where no answer can be read, the beginning stays open and its share is left out.
        """
        known: dict[str, options.Candidates] = {}
        asked: set[str] = set()
        while open_ := [start for start in found.open if start not in asked]:
            if len(asked) >= _MOST_FOLLOW_UPS:
                break
            start = open_[0]
            asked.add(start)
            messages, fields = options.asking("prefill", want, self.request.messages, 0, start)
            reading = await self._say(messages, fields)
            if reading.verdict != "ok":
                continue
            tokens = self._read(reading, fields["max_tokens"]).tokens
            if not tokens or not tokens[0].top:
                continue
            known[start] = options.following(tokens[0])
            again = self._guarded(
                lambda: options.read_options("prefill", want, completion, known, proven=True)
            )
            if isinstance(again, str):
                break
            found = again
        return found

    # Sending and counting ------------------------------------------------------------------------

    async def _say(
        self,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
        needed: Sequence[str] = (),
        most_errors: int | None = None,
    ) -> Reading:
        """Send, and where the server refuses a part, change that part and send again.

        A body that was refused is never sent a second time: each change takes the refused part
        away, and without a change the refusal is returned.
        """
        settings = self.endpoint.settings
        while True:
            adaptations = self.endpoint.spent.adaptations.get(self.model, ())
            body = build(self.model, messages, fields, adaptations, settings.extra)
            epoch, self._epoch = self._epoch, None
            reading = await self.endpoint.deliver(
                body,
                self.request.id,
                self._stopped,
                epoch,
                most_errors,
                self._failed_once.set,
                self._listener,
            )
            if reading.verdict == "ok" or reading.too_long or reading.cause == FORBIDDEN:
                return reading
            change = adaptation(reading, body, settings.extra)
            if not change or (named_in(reading, body) in needed and change != "top_logprobs 5"):
                return reading
            self.endpoint.learn(self.model, change)

    def _read(
        self, reading: Reading, max_new_tokens: int, setting: str = "max_new_tokens"
    ) -> Completion:
        read, written = read_usage(reading.body)
        self._tokens_in += read or 0
        self._tokens_out += written or 0
        secret = self.endpoint.secret
        return self._guarded(lambda: read_completion(reading.body, max_new_tokens, setting, secret))

    def _guarded(self, read: Callable[[], T]) -> T:
        """What a pure function reads in one reply; a reply that breaks it fails this request."""
        try:
            return read()
        except Exception as error:
            said = f"the reply could not be read: {type(error).__name__}"
            failure = Failure("engine", f"{self.endpoint.title}, {self.model}: {said}")
            raise GaveUp(failure, by_errors=False) from error

    def _refusal(self, reading: Reading, more: str = "") -> Failure:
        if reading.too_long:
            return Failure("too_long", f"{self.model} on {self.endpoint.title}: {reading.message}")
        named = f", parameter {reading.param}" if reading.param else ""
        return Failure(
            "refused",
            f"{self.endpoint.title} refused the request to {self.model} (status {reading.cause}"
            f"{named}): {reading.message}{more}",
        )

    def _response(self, **fields: Any) -> Response:
        if not (_storable(fields.get("text")) and _storable(fields.get("error"))):
            # Texts are cleaned where they come in; whatever is missed must not break the ledger.
            said = f"{self.endpoint.title}: the reply holds characters that cannot be stored"
            fields = {"error": Failure("engine", said)}
        return Response(
            self.request.id,
            num_prompt_tokens=self._tokens_in,
            num_completion_tokens=self._tokens_out,
            **fields,
        )


def _storable(said: str | Failure | None) -> bool:
    text = said.message if isinstance(said, Failure) else said or ""
    return clean_text(text)[0] == text


def estimate(endpoint: Endpoint, request: Request, options_tokens: int) -> int:
    """Tokens that the first body of a request is expected to cost."""
    model, want = request.member.base, request.want
    if isinstance(want, Options):
        mode = next(iter(modes_for(endpoint, model)), "written")
        messages, fields = options.asking(mode, want, request.messages, options_tokens)
    else:
        assert isinstance(want, Sampling)
        messages, fields = request.messages, sampling_fields(want, request.seed)
    adaptations = endpoint.spent.adaptations.get(model, ())
    return costs(build(model, messages, fields, adaptations, endpoint.settings.extra))[1].tokens


def modes_for(endpoint: Endpoint, model: str) -> tuple[str, ...]:
    """The ways to ask for options: the one that is known to work, or those to be tried."""
    allowed = options.MODES[endpoint.settings.options]
    known = endpoint.spent.capabilities.get(model)
    if known in allowed:
        return (known,)
    return tuple(mode for mode in allowed if not endpoint.refuses_mode(model, mode))
