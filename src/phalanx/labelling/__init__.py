"""People judge duels blind: see :mod:`phalanx.labelling.sample` and its terminal and page."""

from phalanx.labelling.sample import Labelling, Shown, Wanted, label, start

__all__ = ["Labelling", "Shown", "Wanted", "label", "start"]
