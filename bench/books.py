"""The bookkeeping alone, at full size: see bookkeeping.py for what is run."""

from __future__ import annotations

from bench.bookkeeping import measure
from bench.measuring import Item
from bench.setting import Setting


def run(setting: Setting) -> list[Item]:
    duels, members = setting.size(100_000, 2_000), setting.size(50, 10)
    folder = setting.scratch / "books"
    folder.mkdir()
    found = measure(duels, members, folder)
    size = found["ledger_bytes_per_duel"] * found["duels"] / 2**20
    return [
        Item("bookkeeping: duels a second", found["duels_per_s"], "duels/s", at_least=2000,
             raw=found, note=f"{duels} duels of {members} scripted members, three judges a duel; "
             f"ledger {size:.0f} MiB, report {found['report_s']:.1f} s"),
        Item("bookkeeping: memory at the end against a tenth", found["peak_ratio"], "x memory",
             at_most=1.2),
    ]  # fmt: skip
