"""JODIE as T-GCN runs it beside itself: all edges, t-batches padded, everything on one device."""

from dgbench.systems.jodie.system import JodieSystem

__all__ = ["JodieSystem"]
