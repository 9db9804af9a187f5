"""Content ids and derived seeds: the two things that make a run resumable and repeatable.

Both are BLAKE2b of one JSON list of the parts, so no two lists of parts share a text. Where parts
repeat over many ids, their JSON can be made once (:func:`canonical_json`) and joined:
``joined_id(canonical_json(a), canonical_json(b)) == content_id(a, b)``, and so for the seeds.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _as_object(value: Any) -> dict[str, Any]:
    """What JSON does not know: a dataclass, as the object of its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _field_names(type(value))}
    raise TypeError(f"{type(value).__name__} has no canonical JSON; give text, numbers or records")


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_as_object
)


def _encoder() -> Callable[[Any], str]:
    """``_ENCODER.encode``, which builds its C part anew for every call, with that part kept."""
    if json.encoder.c_make_encoder is None:  # no C code in this Python
        return _ENCODER.encode
    parts = json.encoder.c_make_encoder(
        None, _as_object, json.encoder.encode_basestring, None, ":", ",", True, False, True
    )
    return lambda value: "".join(parts(value, 0))


_encode = _encoder()
quoted = json.encoder.encode_basestring
"""A text as canonical JSON."""


def canonical_json(value: Any) -> str:
    """One JSON text for equal values: sorted keys, no spaces, dataclasses as objects.

    Keys of dictionaries are text. Raises TypeError for what is no text, number, list or record.
    """
    return _encode(value)


def messages_json(messages: Sequence[Any]) -> str:
    """``canonical_json`` of records with ``role`` and ``content``, twice as fast."""
    inner = (f'{{"content":{quoted(m.content)},"role":"{m.role}"}}' for m in messages)
    return f"[{','.join(inner)}]"


def joined_id(*texts: str, length: int = 20) -> str:
    """The :func:`content_id` of parts whose canonical JSON is at hand."""
    joined = f"[{','.join(texts)}]"
    return blake2b(joined.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def content_id(*parts: Any, length: int = 20) -> str:
    """A hexadecimal id that is equal exactly when the parts are equal.

    >>> content_id("a", 1) == content_id("a", 1), content_id("a", 1) == content_id("a", 2)
    (True, False)
    """
    joined = _encode(parts)
    return blake2b(joined.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def joined_seed(*texts: str) -> int:
    """The :func:`derive_seed` of parts whose canonical JSON is at hand."""
    joined = f"[{','.join(texts)}]"
    digest = blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def derive_seed(*parts: Any) -> int:
    """A 63-bit seed from (run seed, iteration, purpose, id, ...); unrelated for unrelated parts."""
    digest = blake2b(_encode(parts).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 1


def derived_random(*parts: Any) -> random.Random:
    """A ``random.Random`` seeded by :func:`derive_seed`; never use the global one."""
    return random.Random(derive_seed(*parts))
