"""Rules about the rival methods: what each of them asks for, in a function of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.config.faults import Fault
from phalanx.config.rules_answering import (
    check_best_of_n,
    check_council,
    check_debating,
    check_mixing,
    check_self_consistency,
)
from phalanx.config.rules_collectives import check_single_multi
from phalanx.config.rules_self import check_meta_rewarding, check_self_rewarding
from phalanx.config.rules_several import check_consensus, check_multiagent
from phalanx.config.rules_single import (
    check_preference_file,
    check_rejection_sampling,
    check_spin,
    check_sppo,
)
from phalanx.config.schema import Config

_RULES: dict[str, Callable[[Config], Iterator[Fault]]] = {
    "self_rewarding": check_self_rewarding,
    "meta_rewarding": check_meta_rewarding,
    "spin": check_spin,
    "sppo": check_sppo,
    "preference_file": check_preference_file,
    "rejection_sampling": check_rejection_sampling,
    "multiagent": check_multiagent,
    "consensus_grpo": check_consensus,
    "single_multi": check_single_multi,
    "self_consistency": check_self_consistency,
    "debate": check_debating,
    "mixture": check_mixing,
    "council": check_council,
    "best_of_n": check_best_of_n,
}
"""What only the method of that name asks for."""


def check_rival(config: Config) -> Iterator[Fault]:
    """Faults and notes of a run by a rival method."""
    rule = _RULES.get(config.method)
    if rule is not None:
        yield from rule(config)
