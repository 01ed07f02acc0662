"""Synthetic twins: seeded graphs fitted to the published statistics of datasets that cannot be
held here. A number measured on one always says so, and `limits` lists what one may not decide."""

from dgbench.datasets.twins.api import describe, generate, names, stream, supports
from dgbench.datasets.twins.params import ArrivalCurve, TwinParams, read_params

__all__ = [
    "ArrivalCurve",
    "TwinParams",
    "describe",
    "generate",
    "names",
    "read_params",
    "stream",
    "supports",
]
