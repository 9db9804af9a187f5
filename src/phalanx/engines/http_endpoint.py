"""One server: its client, its gate, and patience with it. Used inside one asyncio loop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from phalanx.chat import clean_text
from phalanx.config.schema import EndpointSettings
from phalanx.engines.http_account import BYTES_PER_TOKEN, Account, Cost, Spent, costs
from phalanx.engines.http_body import in_words
from phalanx.engines.http_limits import Gate, backoff
from phalanx.engines.http_reading import Reading, read_reply, read_usage
from phalanx.engines.http_secret import Secret
from phalanx.engines.http_stream import BrokenOff, Listener
from phalanx.errors import BudgetError, EngineError, MissingPackage, PhalanxError
from phalanx.types import Failure

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# How long a server is given to take a connection, and to say that it lives.
_CONNECT_S = 10.0
# Between two attempts to reach a server that cannot be reached.
_LONGEST_GAP_S = 5.0
_POLL_S = 0.01
# The first pause of a busy server is this share of the wait before a second try.
_FIRST_PAUSE = 1 / 8
# A pause that somebody who watches would wonder about.
_LONG_WAIT_S = 5.0
# A reply that broke says nothing about how busy the server is: the wait is a quarter of the usual.
_BROKEN = 1 / 4
# Replies of which nothing can be told, not even what they cost.
_NO_REPLY = ("cut JSON", "not JSON", "unreadable")
_BROKEN_OFF = ("cut", "timeout", *_NO_REPLY)
# Doublings of the wait of one request that meets a busy server again and again.
_MOST_DOUBLINGS = 4
# Refusals (403) of single requests in a row, after which it must be the key.
_MOST_FORBIDDEN = 10
# Requests for which one way of asking for options ends in errors before it is left out.
_MOST_DOUBTS = 3
FORBIDDEN = "403"
"""Cause of a reading about one request that the server will not answer for this key."""


class Dropped(Exception):
    """The work was stopped between two tries: the request stays unanswered."""


class GaveUp(Exception):
    """All tries are used up; ``failure`` says so.

    ``by_errors``: the server answered with errors (500 and above) as often as was allowed.
    """

    def __init__(self, failure: Failure, by_errors: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.by_errors = by_errors


class Lost(Exception):
    """A try without a reply: ``timeout``, ``cut`` (the connection broke) or ``unreachable``."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class _Tries:
    """How often one body was sent in vain, and whether that was often enough.

    While the server says nothing but that it is busy, no try is used up until the patience with
    it is at an end: a rate limit of a minute fails no request, and one for ever does.
    """

    def __init__(self, settings: EndpointSettings, most_errors: int | None) -> None:
        self._most = settings.tries
        self._patience = settings.patience
        self._most_errors = min(most_errors or settings.tries, settings.tries)
        self._failed = 0
        self._errors = 0
        self._busy = 0
        self._busy_since = 0.0

    def count(self, cause: str, busy: bool) -> None:
        if busy:
            self._busy_since = self._busy_since if self._busy else time.monotonic()
            self._busy += 1
        elif cause != "unreachable":
            self._busy = 0
            self._failed += 1
            self._errors += cause.startswith("status 5")

    @property
    def by_errors(self) -> bool:
        return self._errors >= self._most_errors

    @property
    def sent(self) -> int:
        return self._failed + self._busy

    @property
    def over(self) -> bool:
        if self._failed >= self._most or self.by_errors:
            return True
        busy_for = time.monotonic() - self._busy_since if self._busy else 0.0
        return self.sent >= self._most and busy_for >= self._patience

    @property
    def doublings(self) -> int:
        """Of the wait before the next try."""
        number = min(self._busy, _MOST_DOUBLINGS) if self._busy else self._failed
        return max(number - 1, 0)


class Endpoint:
    """Sends bodies to one server until they are answered; counts what they cost.

    ``key`` is the secret itself, or "": it goes into the header and nowhere else. ``backoff_s`` is
    the wait before a second try.
    """

    def __init__(
        self, settings: EndpointSettings, account: Account, key: str, backoff_s: float = 0.5
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.gate = Gate(
            settings.max_concurrency, settings.requests_per_minute, settings.tokens_per_minute
        )
        self.sending: set[asyncio.Task[Any]] = set()
        self.news: deque[str] = deque(maxlen=20)
        """What somebody who watches the run should hear; whoever says it takes it out."""
        self._account = account
        self._key = key
        self.secret = Secret(key)
        self._backoff_s = backoff_s
        self._client: AsyncOpenAI | None = None
        self._heard_at = 0.0
        self._quiet = False
        self._unreachable = 0
        self._busy = 0
        self._welcome = False
        self._forbidden = 0
        self._refused: set[tuple[str, str]] = set()
        self._doubts: Counter[tuple[str, str]] = Counter()

    def begin(self) -> None:
        """A new work: the time since the last one, in which nothing was asked, is no silence."""
        self._heard()

    @property
    def spent(self) -> Spent:
        return self._account.spent(self.name)

    @property
    def title(self) -> str:
        return f"endpoint {self.name} ({self.settings.url})"

    def learn(self, model: str, change: str) -> None:
        """Remember what has to be sent differently to a model."""

        def add(entry: Spent) -> None:
            known = entry.adaptations.setdefault(model, [])
            if change not in known:
                known.append(change)
                entry.notes.append(f"{model}: {in_words(change)}")

        self._account.change(self.name, add)

    def learn_mode(self, model: str, mode: str, words: str) -> None:
        """Remember how a model's options are read."""

        def put(entry: Spent) -> None:
            if entry.capabilities.get(model) != mode:
                entry.capabilities[model] = mode
                entry.notes.append(f"{model}: options are read from {words}")

        self._account.change(self.name, put)

    def refuse_mode(self, model: str, mode: str) -> None:
        """Do not ask in this way again; a later start of the run may."""
        self._refused.add((model, mode))

    def doubt_mode(self, model: str, mode: str) -> None:
        """This way ended in errors and another one did not: three times are a refusal."""
        self._doubts[model, mode] += 1
        if self._doubts[model, mode] >= _MOST_DOUBTS:
            self.refuse_mode(model, mode)

    def refuses_mode(self, model: str, mode: str) -> bool:
        return (model, mode) in self._refused

    async def deliver(
        self,
        body: Mapping[str, Any],
        place: str,
        stopped: Callable[[], bool],
        epoch: int | None = None,
        most_errors: int | None = None,
        failed: Callable[[], None] = lambda: None,
        listener: Listener | None = None,
    ) -> Reading:
        """Send the body until a reading with the verdict ``ok`` or ``wrong`` comes back.

        ``place`` derives the jitter; ``epoch`` is given where the caller has entered the gate for
        the first try already; ``most_errors`` bounds the replies of status 500 and above;
        ``failed`` is called after each try that came to nothing; ``listener`` hears a body with
        ``stream``, and once it has shown something there is no other try. Raises
        GaveUp, Dropped, BudgetError, and EngineError where the server refuses the key, does not
        know the model, or is silent for too long.
        """
        worst, usual = costs(body)
        tries = _Tries(self.settings, most_errors)
        while True:
            if epoch is None:
                epoch = await self.gate.enter(usual.tokens, again=True)
            try:
                reading = await self._once(body, worst, usual, stopped, epoch, listener)
                if reading.verdict in ("ok", "wrong"):
                    return reading
                self._refuse(reading, str(body["model"]))
                cause, what = reading.cause, reading.message
                tries.count(cause, reading.busy)
            except Lost as lost:
                cause, what = lost.cause, str(lost)
                tries.count(cause, False)
            finally:
                self.gate.leave()
                epoch = None
            self._account.retried(self.name, cause)
            failed()
            if tries.over or (listener is not None and listener.began):
                raise GaveUp(self._gave_up(tries.sent, cause, what), tries.by_errors)
            if stopped():
                raise Dropped
            if cause != "unreachable":
                # For a busy server the gate is closed as well, so that nobody else comes sooner.
                first = self._backoff_s * (_BROKEN if cause in _BROKEN_OFF else 1)
                await asyncio.sleep(backoff(first, tries.doublings, place))

    def _gave_up(self, tries: int, cause: str, what: str) -> Failure:
        kind = "timeout" if cause == "timeout" else "engine"
        times = "1 try" if tries == 1 else f"{tries} tries"
        said = what if what.startswith(cause) else f"{cause}: {what}"
        return Failure(kind, f"{self.title} gave no usable reply in {times}; the last: {said}")

    async def _once(
        self,
        body: Mapping[str, Any],
        worst: Cost,
        usual: Cost,
        stopped: Callable[[], bool],
        epoch: int,
        listener: Listener | None = None,
    ) -> Reading:
        """One try inside the gate. Raises Lost where no reply comes."""
        await self._reserve(worst, stopped)
        real: Cost | None = usual  # where no reply tells, the server may have done all the work
        task = asyncio.current_task()
        assert task is not None
        if not self.sending and not self._quiet:
            self._heard_at = time.monotonic()
        self.sending.add(task)
        try:
            status, headers, content = await self._send(body, listener)
            self._heard()
            reading = self._allowed(self._read(status, headers, content))
            real = _real(reading, status, content, usual)
            # A count beyond the worst case would keep the rate closed for ages.
            self.gate.correct(min(real.tokens, worst.tokens) - usual.tokens)
            self._adjust(reading, epoch)
            return reading
        except Lost as lost:
            if lost.cause == "unreachable":
                real = None
            self.gate.correct(-usual.tokens if real is None else 0)
            await self._silence(lost, epoch)
            raise
        finally:
            self.sending.discard(task)
            self._account.settle(self.name, worst, real)

    async def _reserve(self, worst: Cost, stopped: Callable[[], bool]) -> None:
        """Wait until the budget holds the worst case; what is in flight may cost less than its."""
        while not self._account.reserve(self.name, worst):
            if self._account.idle:
                raise BudgetError(self._account.in_words())
            if stopped():
                raise Dropped
            await asyncio.sleep(_POLL_S)

    async def _send(
        self, body: Mapping[str, Any], listener: Listener | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        client = self._open()
        import openai

        fields = dict(body)
        sent = {
            "model": fields.pop("model"),
            "messages": fields.pop("messages"),
            "extra_body": fields,
            "extra_headers": self._headers(),
        }
        chat = client.chat.completions
        try:
            async with asyncio.timeout(self.settings.timeout):
                if listener is not None:
                    async with chat.with_streaming_response.create(**sent) as reply:
                        content = await listener.body_of(reply)
                        return reply.status_code, _lower(reply.headers), content
                raw = await chat.with_raw_response.create(**sent)
        except openai.APIStatusError as error:
            return error.status_code, _lower(error.response.headers), error.response.content
        except TimeoutError:
            raise Lost("timeout", f"no reply within {self.settings.timeout:g} s") from None
        except openai.APIConnectionError as error:
            raise self._lost(error) from None
        except BrokenOff as error:
            raise Lost("cut", clean_text(self.secret.hide(str(error)))[0][:300]) from None
        return raw.status_code, _lower(raw.headers), raw.http_response.content

    def _lost(self, error: Exception) -> Lost:
        cause = error.__cause__
        kind = type(cause).__name__
        words = clean_text(self.secret.hide(f"{kind}: {cause}" if cause else str(error)))[0][:300]
        if kind in ("ConnectError", "ConnectTimeout"):
            return Lost("unreachable", words)
        if "Timeout" in kind:
            return Lost("timeout", f"no reply within {self.settings.timeout:g} s")
        return Lost("cut", words)

    def _open(self) -> AsyncOpenAI:
        if self._client is None:
            try:
                import openai
            except ImportError:
                raise MissingPackage("openai", "openai", "a member behind an endpoint") from None
            timeout = openai.Timeout(
                self.settings.timeout, connect=min(_CONNECT_S, self.settings.timeout)
            )
            self._client = openai.AsyncOpenAI(
                base_url=self.settings.url,
                api_key=self._key or "none",
                max_retries=0,
                timeout=timeout,
                # The key and the prompts go to no other place than the one that was named.
                http_client=openai.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False),
            )
        return self._client

    def _headers(self) -> dict[str, Any]:
        """Settings of the environment that belong to another service stay out of the headers."""
        import openai

        left_out = ["OpenAI-Organization", "OpenAI-Project"]
        left_out += [] if self._key else ["Authorization"]
        return {name: openai.Omit() for name in left_out}

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    # What replies and silence mean ---------------------------------------------------------------

    def _read(self, status: int, headers: Mapping[str, str], content: bytes) -> Reading:
        """The reading; whatever a server sends, one reply of it breaks no run."""
        try:
            return read_reply(status, headers, content, secret=self.secret)
        except Exception as error:
            said = f"the reply could not be read: {type(error).__name__}"
            return Reading("retry", said, cause="unreadable")

    def _allowed(self, reading: Reading) -> Reading:
        """A 403 of a server that takes the key is about the one request; many are not."""
        if reading.verdict == "ok":
            self._welcome, self._forbidden = True, 0
        if reading.verdict != "denied" or reading.cause != FORBIDDEN or not self._welcome:
            return reading
        self._forbidden += 1
        if self._forbidden > _MOST_FORBIDDEN:
            return reading
        return replace(reading, verdict="wrong")

    def _adjust(self, reading: Reading, epoch: int) -> None:
        if reading.busy:
            if self.gate.congested(epoch) and not reading.wait:
                first = self._backoff_s * _FIRST_PAUSE
                self.gate.pause(backoff(first, self._busy, self.name))
                self._busy += 1
        elif reading.verdict == "ok":
            self.gate.went_well(epoch)
            self._busy = 0
        if reading.wait is not None:
            # A little later than asked, so that a clock that runs fast does not come too early.
            self.gate.pause(reading.wait * 1.02 + 0.01)
            if reading.wait >= _LONG_WAIT_S:
                self.news.append(f"{self.title} asks for a pause of {reading.wait:.0f} s")

    def _refuse(self, reading: Reading, model: str) -> None:
        """Raise EngineError for what no other try will change."""
        said = f"it said: {reading.message}"
        if reading.verdict == "denied":
            key = self.settings.key
            mend = (
                f"put a valid key into the environment variable {key}"
                if key
                else f"name the environment variable with the key in endpoints.{self.name}.key"
            )
            raise EngineError(f"{self.title} refuses access ({reading.cause}); {mend}; {said}")
        if reading.verdict == "unknown":
            raise EngineError(
                f"{self.title} does not know the model {model!r}, or the url is not the base of "
                f"an OpenAI-compatible server (it ends in /v1 as a rule); {said}"
            )
        if reading.verdict == "moved":
            place = reading.message or "a place that it does not name"
            raise EngineError(
                f"{self.title} redirects to {place} (status {reading.cause}), and redirects are "
                f"not followed; set endpoints.{self.name}.url to it"
            )
        if reading.spent_up:
            raise EngineError(f"the account behind {self.title} is used up; {said}")

    def _heard(self) -> None:
        if self._unreachable:
            self.news.append(f"{self.title} answers again")
        self._heard_at, self._quiet, self._unreachable = time.monotonic(), False, 0

    async def _silence(self, lost: Lost, epoch: int) -> None:
        """Narrow or close the gate; raise EngineError when the patience is at an end."""
        self._quiet = True
        if lost.cause == "unreachable":
            news = self.gate.closed(epoch)
            self._unreachable += news
            if news and self._unreachable == 1:
                limit = self.settings.patience
                self.news.append(f"{self.title} cannot be reached; it is waited for {limit:g} s")
            gap = backoff(self._backoff_s, self._unreachable, self.name)
            self.gate.pause(min(gap, _LONGEST_GAP_S, self.settings.patience / 4))
        elif lost.cause == "timeout":
            self.gate.congested(epoch)
        silent = time.monotonic() - self._heard_at
        if silent < self.settings.patience:
            return
        if lost.cause != "unreachable" and await self._lives():
            self._heard()  # slow with this request, but there
            return
        self._quiet = False
        raise self._broken(silent, str(lost))

    async def _lives(self) -> bool:
        """Whether the server answers anything at all."""
        import openai

        try:
            async with asyncio.timeout(min(_CONNECT_S, self.settings.timeout)):
                await self._open().models.with_raw_response.list(extra_headers=self._headers())
        except openai.APIStatusError:
            return True
        except (openai.APIConnectionError, TimeoutError):
            return False
        return True

    def _broken(self, silent: float, what: str) -> PhalanxError:
        return SilentEndpoint(
            f"{self.title} has not answered for {silent:.0f} s: {what}; start it and run the same "
            "command again; everything answered is recorded"
        )


class SilentEndpoint(EngineError):
    """A server that gives no sign of life: whatever waits for it is given up."""


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _real(reading: Reading, status: int, content: bytes, usual: Cost) -> Cost:
    """What a reply cost: as the server counted, else an estimate; errors cost nothing."""
    if not (200 <= status < 300 and (reading.body or reading.cause in _NO_REPLY)):
        return Cost()
    read, written = read_usage(reading.body)
    return Cost(
        usual.tokens_in if read is None else read,
        len(content) // BYTES_PER_TOKEN if written is None else written,
    )
