"""A run as one file that another machine can open: see ``pack`` and ``unpack`` here."""

from phalanx.packing.manifest import FORMAT, Manifest
from phalanx.packing.pack import Packed, pack
from phalanx.packing.unpack import Unpacked, unpack

__all__ = ["FORMAT", "Manifest", "Packed", "Unpacked", "pack", "unpack"]
