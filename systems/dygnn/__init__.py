"""DyGNN as T-GCN runs it beside itself: all edges, t-batches padded, everything on one device."""

from dgbench.systems.dygnn.system import DygnnSystem

__all__ = ["DygnnSystem"]
