"""Sizes that the formats of this floor can hold."""

from __future__ import annotations

from typing import Final

MAX_NODES: Final = 2**31 - 1
"""Most vertices of a graph: `Csr.indices` are int32."""
