"""``push``: make the parcel, look at the Hub, ask, send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from phalanx.errors import ConfigError
from phalanx.handing import hub
from phalanx.handing.parcel import Parcel, build, refuse_name
from phalanx.ledger import Ledger, run_ledger_path
from phalanx.placing import placed

Ask = Callable[[Parcel, Sequence[hub.State]], bool]


def push(
    run: Path | str,
    repository: str,
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    data: Sequence[str] | None = None,
    weights: str = "adapter",
    public: bool = False,
    confirm: Ask = lambda parcel, states: True,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Send a run's adapters (or merged weights), data sets and cards to the Hub: their addresses.

    ``repository`` is OWNER/NAME, once as a model and once as a data set, private unless ``public``.
    ``confirm`` sees what is to be sent, and what is there, before anything leaves; where it says
    no, nothing does, and the list is empty. Else as :func:`phalanx.handing.parcel.build`; raises
    HubError where the Hub cannot be reached or refuses.
    """
    refuse_name(repository)
    hub.refuse_without_token()  # before whole models are written
    with TemporaryDirectory(prefix="phalanx-push-") as scratch:
        parcel = build(
            run, repository, Path(scratch), members=members, data=data, weights=weights,
            overrides=overrides,
        )  # fmt: skip
        states = hub.look(parcel.repositories, public=public)
        if not confirm(parcel, states):
            return []
        return hub.send(states, public=public, say=say)


def write_parcel(
    run: Path | str,
    repository: str,
    out: Path | str,
    overrides: Sequence[str] = (),
    *,
    members: Sequence[str] = (),
    data: Sequence[str] | None = None,
    weights: str = "adapter",
) -> Parcel:
    """Write to ``out`` what :func:`push` would send. The Hub is not asked."""
    target = Path(out)
    with Ledger(run_ledger_path(run)) as ledger:
        ledger.refuse_target(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists already; remove it, or name another with --out")
    with placed(target) as place:
        place.mkdir()
        parcel = build(
            run, repository, place, members=members, data=data, weights=weights,
            overrides=overrides,
        )  # fmt: skip
    there = tuple(replace(r, folder=target / r.kind) for r in parcel.repositories)
    return replace(parcel, repositories=there)
