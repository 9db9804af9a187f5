"""What endpoints have cost, what the budget still allows, and what was learnt about servers.

All of it goes into the run's ledger as facts, so that a budget covers the whole run, however often
it is started. Used by the asyncio loop and by the caller's thread, hence the lock.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from phalanx.config.schema import BudgetSettings, EndpointSettings
from phalanx.errors import LedgerError

_PER_MESSAGE = 16
_PER_PROMPT = 64
# What a token of text is on average in bytes, for rates and for servers that count nothing.
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """One try: tokens read and written, in estimate or as the server counted them."""

    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


def costs(body: Mapping[str, Any]) -> tuple[Cost, Cost]:
    """What a chat request costs at most, and as a rule, told from its body alone.

    At most: a token is at least a byte, chat templates add some of their own, and every further
    field that holds text (tools, schemas, choices) may become a part of the prompt.
    """
    turns = body["messages"]
    size = sum(len(turn["content"].encode("utf-8", "replace")) for turn in turns)
    size += sum(_size(value) for key, value in body.items() if key not in ("model", "messages"))
    added = _PER_MESSAGE * len(turns)
    written = max(int(body.get(key) or 0) for key in ("max_completion_tokens", "max_tokens"))
    worst = Cost(size + added + _PER_PROMPT, written)
    return worst, Cost(size // BYTES_PER_TOKEN + added, written)


def _size(value: Any) -> int:
    """Bytes of a field; numbers and switches are settings and no text."""
    if value is None or isinstance(value, bool | int | float):
        return 0
    return len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))


@dataclass
class Spent:
    """What one endpoint has cost in this run, and what was learnt about it.

    ``retries`` counts by cause, ``capabilities`` has each model's way of reading options,
    ``adaptations`` what is sent differently to each model, ``notes`` the same in words. These
    three were learnt about the server at ``url`` and hold for no other.
    """

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    money: float = 0.0
    retries: dict[str, int] = field(default_factory=dict)
    capabilities: dict[str, str] = field(default_factory=dict)
    adaptations: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    url: str = ""

    def forget(self) -> None:
        """What was learnt; not what was spent."""
        self.capabilities, self.adaptations, self.notes = {}, {}, []


class Account:
    """The books of one engine: an entry for each endpoint, one budget over all.

    ``name`` is the engine's: facts are kept under "NAME:ENDPOINT".
    """

    def __init__(
        self, endpoints: Sequence[EndpointSettings], budget: BudgetSettings, name: str
    ) -> None:
        self._settings = {endpoint.name: endpoint for endpoint in endpoints}
        self._budget = budget
        self._name = name
        self._lock = threading.Lock()
        self._spent = {name: Spent(url=one.url) for name, one in self._settings.items()}
        self._reserved: Counter[str] = Counter()

    # Budget --------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether nothing is reserved, so that waiting would free nothing."""
        with self._lock:
            return not self._reserved["requests"]

    def reserve(self, endpoint: str, worst: Cost) -> bool:
        """Set the worst case of one try aside; False where the budget may not hold it."""
        ahead = {
            "requests": 1,
            "tokens": worst.tokens,
            "money": self._price(endpoint, worst),
        }
        with self._lock:
            for key, amount in ahead.items():
                most = getattr(self._budget, key)
                # Sums of prices carry rounding errors far below any price.
                if most is not None and self._total(key) + amount > most * (1 + 1e-9):
                    return False
            self._reserved.update(ahead)
            return True

    def settle(self, endpoint: str, worst: Cost, real: Cost | None) -> None:
        """Replace a reservation by what the try really cost; None: it never reached the server."""
        with self._lock:
            self._reserved.subtract(
                {"requests": 1, "tokens": worst.tokens, "money": self._price(endpoint, worst)}
            )
            if not self._reserved["requests"]:
                self._reserved.clear()  # and with it the rounding errors
            if real is None:
                return
            entry = self._spent[endpoint]
            entry.requests += 1
            entry.tokens_in += real.tokens_in
            entry.tokens_out += real.tokens_out
            entry.money += self._price(endpoint, real)

    def in_words(self) -> str:
        """What is spent of what, and what to do: the text of a BudgetError."""
        with self._lock:
            limits = [
                (key, self._done(key), getattr(self._budget, key))
                for key in ("requests", "tokens", "money")
                if getattr(self._budget, key) is not None
            ]
        spent = " and ".join(f"{done:.6g} of {most:.6g} {key}" for key, done, most in limits)
        keys = " or ".join(f"budget.{key}" for key, _, _ in limits)
        return (
            f"the budget is used up: {spent} spent, and the next request could go beyond it; "
            f"everything answered is recorded. Raise {keys} and run the same command again"
        )

    def _price(self, endpoint: str, cost: Cost) -> float:
        return self._settings[endpoint].money(cost.tokens_in, cost.tokens_out)

    def _done(self, key: str) -> float:
        if key == "tokens":
            return sum(entry.tokens_in + entry.tokens_out for entry in self._spent.values())
        return sum(getattr(entry, key) for entry in self._spent.values())

    def _total(self, key: str) -> float:
        return self._done(key) + self._reserved[key]

    # What was learnt -----------------------------------------------------------------------------

    def spent(self, endpoint: str) -> Spent:
        """The entry of one endpoint; written only through :meth:`change`."""
        return self._spent[endpoint]

    def change(self, endpoint: str, change: Callable[[Spent], None]) -> None:
        """Change an entry while nobody else reads it."""
        with self._lock:
            change(self._spent[endpoint])

    def retried(self, endpoint: str, cause: str) -> None:
        """Count a try that has to be made again."""

        def count(entry: Spent) -> None:
            entry.retries[cause] = entry.retries.get(cause, 0) + 1

        self.change(endpoint, count)

    # Facts ---------------------------------------------------------------------------------------

    def facts(self) -> dict[str, str]:
        """Everything since the run began, as it goes into the ledger."""
        with self._lock:
            used = {name: entry for name, entry in self._spent.items() if entry.requests}
            return {
                f"{self._name}:{name}": json.dumps(asdict(entry), sort_keys=True)
                for name, entry in used.items()
            }

    def restore(self, facts: Mapping[str, str]) -> None:
        """Take up a run: its facts replace whatever was counted so far, so nothing counts twice.

        Facts of endpoints that the configuration no longer has still count for the budget; where
        an endpoint has another url by now, only what was spent is taken up.
        Raises LedgerError where a fact cannot be read.
        """
        with self._lock:
            self._spent = {name: Spent(url=one.url) for name, one in self._settings.items()}
            for key, text in facts.items():
                name = key.removeprefix(f"{self._name}:")
                try:
                    entry = self._spent[name] = Spent(**json.loads(text))
                except (ValueError, TypeError) as error:
                    raise LedgerError(
                        f"the ledger's fact {key!r} cannot be read ({error}); use the version of "
                        "phalanx that the run was started with"
                    ) from None
                url = self._settings[name].url if name in self._settings else entry.url
                if entry.url not in ("", url):
                    entry.forget()
                entry.url = url
