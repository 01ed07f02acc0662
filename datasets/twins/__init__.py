"""Synthetic twins: seeded graphs fitted to the published statistics of datasets that cannot be
held here. A number measured on one always says so, and `limits` lists what one may not decide."""

from dgbench.datasets.twins.api import describe, generate, names, stream, supports
from dgbench.datasets.twins.params import Curve, TwinParams, read_params

__all__ = [
    "Curve",
    "TwinParams",
    "describe",
    "generate",
    "names",
    "read_params",
    "stream",
    "supports",
]
