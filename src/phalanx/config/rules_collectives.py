"""Rules of members that learn what a collective of them answers."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.config.faults import Fault
from phalanx.config.mixing import debaters_of, pool_settings
from phalanx.config.rules_answering import check_choice, check_seats
from phalanx.config.rules_moaa import check_mixture, check_writer
from phalanx.config.rules_several import check_debate, check_match
from phalanx.config.schema import Config


def check_single_multi(config: Config) -> Iterator[Fault]:
    """A collective that can answer while members learn, when nobody knows who is best."""
    settings, best = config.single_multi, config.best_of_n
    votes = settings.collective == "debate" and not config.debate.summariser
    if settings.match != "none" and votes:
        yield from check_match(settings.match, ("single_multi", "match"))
    elif settings.match != "none":
        text = "has no use but in a debate without a summariser, which is the one that votes"
        yield Fault(("single_multi", "match"), text, "note")
    if not pool_settings(config):
        return
    if settings.collective == "mixture":
        yield from check_mixture(config)
    elif settings.collective == "council":
        yield from check_seats(config)
    elif settings.collective == "debate":
        yield from check_debate(config)
        debaters = dict.fromkeys(debaters_of(config))
        if votes and settings.match == "none" and len(debaters) == 2:
            text = (
                f"is none, so that debaters vote for free answers, but {' and '.join(debaters)} "
                "have nobody else's two answers to choose between, and one is drawn; set match, "
                "name debate.summariser, or add a third debater"
            )
            yield Fault(("single_multi", "match"), text, "note")
    elif best.member:
        yield from check_writer(config, best.member, ("best_of_n", "member"))
        yield from check_choice(config)
    else:
        text = (
            "names nobody; who is best on dev items is not known while members learn, so with "
            "single_multi.collective: best_of_n name the member that answers"
        )
        yield Fault(("best_of_n", "member"), text)
