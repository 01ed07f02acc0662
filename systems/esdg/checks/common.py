"""What the checks share."""

from __future__ import annotations

from dgbench.lab.evidence import finding, from_ratio, missing, some, strength

__all__ = ["finding", "from_ratio", "missing", "some", "strength"]

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- esdg --device cuda"
