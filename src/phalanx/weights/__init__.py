"""Bases and adapters in memory. Importing this package loads neither torch nor transformers."""

from __future__ import annotations

from phalanx.weights.adapters import adapter_hash, resolve_adapter
from phalanx.weights.builtin import resolve_model
from phalanx.weights.store import Weights

__all__ = ["Weights", "adapter_hash", "resolve_adapter", "resolve_model"]
