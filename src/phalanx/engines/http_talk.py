"""One request of one member, spoken with its server: adapted, read, and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.engines import http_options as options
from phalanx.engines.http_body import adaptation, build, named_in, sampling_fields
from phalanx.engines.http_endpoint import Endpoint, GaveUp
from phalanx.engines.http_reading import Completion, Reading, read_completion
from phalanx.types import Failure, Message, Options, Request, Response, Sampling

# Beginnings of several options that one request asks about in further requests.
_MOST_FOLLOW_UPS = 4


class Talk:
    """Turns a request into bodies and the replies into its response.

    ``model`` is the name that the server knows; ``epoch`` is the gate's, entered by the caller for
    the first body. The tokens of everything that was sent for the request are added up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        model: str,
        stopped: Callable[[], bool],
        epoch: int | None,
    ) -> None:
        self.endpoint = endpoint
        self.request = request
        self.model = model
        self._stopped = stopped
        self._epoch = epoch
        self._tokens_in = 0
        self._tokens_out = 0

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
        fields = sampling_fields(want, self.request.seed)
        reading = await self._say(self.request.messages, fields)
        if reading.verdict == "wrong":
            return self._response(error=self._refusal(reading))
        completion = self._read(reading, want.max_new_tokens)
        if completion.failure:
            return self._response(error=completion.failure, flags=completion.flags)
        return self._response(
            text=completion.text, finish_reason=completion.finish_reason, flags=completion.flags
        )

    # Options -------------------------------------------------------------------------------------

    async def _chosen(self, want: Options) -> Response:
        """Ask in the way that the server is known to understand, or find it out."""
        failure = Failure("refused", "no way of asking for options is left")
        for mode in modes_for(self.endpoint, self.model):
            found = await self._in_mode(mode, want)
            if isinstance(found, Response):
                return found
            failure = found
        return self._response(error=failure)

    async def _in_mode(self, mode: str, want: Options) -> Response | Failure:
        """The response, or a failure that another mode may not have."""
        messages, fields = options.asking(mode, want, self.request.messages)
        needed = options.needs(mode)
        reading = await self._say(messages, fields, needed)
        if reading.verdict == "wrong":
            failure = self._refusal(reading, f" (asked for {options.IN_WORDS[mode]})")
            return self._response(error=failure) if reading.too_long else failure
        completion = self._read(reading, fields["max_tokens"])
        if completion.failure and not completion.tokens:
            return completion.failure
        proven = self.endpoint.spent.capabilities.get(self.model) == mode
        found = options.read_options(mode, want, completion, proven=proven)
        if isinstance(found, str):
            return Failure("unreadable", f"{self.endpoint.title}, {self.model}: {found}")
        if found.open and mode == "prefill":
            found = await self._followed_up(want, completion, found)
        if found.mass <= 0:
            return Failure("unreadable", f"{self.endpoint.title}: no option has a probability")
        self.endpoint.learn_mode(self.model, mode, options.IN_WORDS[mode])
        return self._response(
            probabilities=found.probabilities,
            option_mass=found.mass,
            flags=(*completion.flags, *found.flags),
        )

    async def _followed_up(
        self, want: Options, completion: Completion, found: options.OptionReading
    ) -> options.OptionReading:
        """Ask what follows beginnings that several options share, such as "1" of "1" and "10"."""
        known: dict[str, options.Candidates] = {}
        while open_ := [start for start in found.open if start not in known]:
            if len(known) >= _MOST_FOLLOW_UPS:
                break
            messages, fields = options.asking("prefill", want, self.request.messages, open_[0])
            reading = await self._say(messages, fields)
            tokens = ()
            if reading.verdict == "ok":
                tokens = self._read(reading, fields["max_tokens"]).tokens
            known[open_[0]] = options.following(tokens[0]) if tokens else ()
            again = options.read_options("prefill", want, completion, known, proven=True)
            if isinstance(again, str):
                break
            found = again
        return found

    # Sending and counting ------------------------------------------------------------------------

    async def _say(
        self, messages: Sequence[Message], fields: Mapping[str, Any], needed: Sequence[str] = ()
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
                "chat/completions", body, self.request.id, self._stopped, epoch
            )
            if reading.verdict == "ok" or reading.too_long:
                return reading
            change = adaptation(reading, body, settings.extra)
            if not change or (named_in(reading, body) in needed and change != "top_logprobs 5"):
                return reading
            self.endpoint.learn(self.model, change)

    def _read(self, reading: Reading, max_new_tokens: int) -> Completion:
        completion = read_completion(reading.body, max_new_tokens)
        self._tokens_in += completion.num_prompt_tokens or 0
        self._tokens_out += completion.num_completion_tokens or 0
        return completion

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
        return Response(
            self.request.id,
            num_prompt_tokens=self._tokens_in,
            num_completion_tokens=self._tokens_out,
            **fields,
        )


def modes_for(endpoint: Endpoint, model: str) -> tuple[str, ...]:
    """The ways to ask for options: the one that is known to work, or those to be tried."""
    allowed = options.MODES[endpoint.settings.options]
    known = endpoint.spent.capabilities.get(model)
    return (known,) if known in allowed else allowed
