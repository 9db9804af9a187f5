"""From where on a number of a run is worth a warning, the same for the page and for guards.

They are where practice says "look", not laws: a warning is a reason to read responses, no proof.
"""

from __future__ import annotations

MIN_STEPS = 8
"""Steps that a training needs before its signals say anything."""
MIN_JUDGMENTS = 20
"""Judgments that a judge needs before its shares say anything."""
MIN_RESPONSES = 10
"""Responses of a member in an iteration before their mean length says anything."""
MIN_ITEMS = 20
"""Dev items that a member was asked before its score on them says anything."""

MAX_KL = 0.5
"""Nats a token between the member and its reference, at the end of a training."""
CHOSEN_FALLS = 0.1
"""Nats a token by which the chosen responses became less likely than at the start."""
ACCURACY_AT_ONCE = 0.95
"""Share of pairs ranked right in the first tenth of the steps, the first step left out."""
MARGIN_FLAT = 0.01
"""Reward margin at the end of a training, at least, for it to have learnt an order."""
LOSS_ZERO = 0.05
"""Loss of preference training at the end, below which the pairs are known by heart."""
GRADIENT_JUMP = 10.0
"""Gradient norm of one step over the median of all."""
CLIPPED = 0.3
"""Share of tokens whose ratio GRPO clips at the end of a training."""
LENGTH_GAP = 1.3
"""Tokens of the chosen responses over those of the rejected ones."""
LENGTH_DRIFT = 1.5
"""Mean tokens of a response over those of the first iteration (or its inverse)."""

MAX_UNREADABLE = 0.2
"""Share of a judge's judgments that could not be read."""
MAX_FLIPS = 0.3
"""Share of a judge's readable judgments that changed when the responses changed places."""
FAVOURS_LONGER = 0.6
"""Share of untied judgments for the longer response, which its interval must exceed."""
FAVOURS_OWN = 0.1
"""Share of untied judgments for the own side over that of the outcomes on the same duels."""
