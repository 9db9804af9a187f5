"""Which rows go together, in which order, and how the learning rate starts. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phalanx.identity import derived_random

_POOL = 16
"""Batches' worth of shuffled rows that are sorted by length together."""


def plan_batches(
    lengths: Sequence[int], batch_size: int, epochs: int, seed: int
) -> list[list[list[int]]]:
    """For each epoch its batches, each a list of row positions.

    Every epoch holds every row once, in an order of its own. Rows are shuffled, then sorted by
    length within pools of 16 batches, so that little is padded and batches still differ.
    """
    rng = derived_random("batches", seed)
    plan = []
    for _ in range(epochs):
        order = list(range(len(lengths)))
        rng.shuffle(order)
        size = batch_size * _POOL
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        epoch = []
        for pool in pools:
            pool.sort(key=lambda position: -lengths[position])
            epoch += [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
        rng.shuffle(epoch)
        plan.append(epoch)
    return plan


def step_count(num_batches: int, accumulate: int) -> int:
    """Optimiser steps over so many batches; the last step may have fewer batches."""
    return math.ceil(num_batches / accumulate)


def warmup_steps(share: float, steps: int) -> int:
    """Steps of warm-up, always fewer than all steps, so that the full rate is reached.

    transformers starts a warm-up at rate 0; a warm-up as long as the training trains nothing.

    >>> warmup_steps(0.1, 1), warmup_steps(0.1, 20), warmup_steps(1.0, 20)
    (0, 2, 19)
    """
    return max(0, min(round(share * steps), steps - 1))
