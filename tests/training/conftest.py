"""Numbers are compared in float32, also where ``auto`` would be bfloat16."""

from __future__ import annotations

import pytest

from phalanx.weights import store


@pytest.fixture(autouse=True, scope="package")
def float32():
    chosen = store.dtype_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            store,
            "dtype_of",
            lambda name, device: chosen("float32" if name == "auto" else name, device),
        )
        yield
