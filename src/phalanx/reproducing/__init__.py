"""The tables of the papers: configurations, plan and commands, and cells filled from runs.

=================  ================================================================================
file               what it holds
=================  ================================================================================
papers/            what is published, with its source: data, one file a paper
papers             that data, typed
configurations     the runs that the chosen tables need, and why a cell has none
filling            cells from the ledgers of runs that exist
tables, writing    README.md; configs/, commands.sh and plan.md
work               all of it: ``phalanx reproduce``
=================  ================================================================================
"""

from phalanx.reproducing.configurations import Wish
from phalanx.reproducing.work import Reproduction, reproduce_to

__all__ = ["Reproduction", "Wish", "reproduce_to"]
