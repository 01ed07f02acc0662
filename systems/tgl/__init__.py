"""The baseline of streaming systems: TGL's rows, rebuilt from all edges every round."""

from dgbench.systems.tgl.access import RebuiltAccess
from dgbench.systems.tgl.system import TglSystem

__all__ = ["RebuiltAccess", "TglSystem"]
