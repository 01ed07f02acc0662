"""Minimum work of an operator, and the limits of this machine that bound it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

import torch

GB = 1e9
LINE = 64
"""Bytes of a cache line."""


@cache
def machine() -> str:
    """The processor and the threads that torch uses, as a folder's name."""
    from dgbench.systems.base.calibration import calibration_path

    return calibration_path("bench", "cpu").stem.removesuffix("-cpu")


@cache
def limits(budget_s: float = 2.0) -> dict[str, float]:
    """`copy` in bytes a second read and written, `lines` a second, `products` in operations."""
    from dgbench.harness.machine.limits import best_time, measure_limits
    from dgbench.kernels_cuda import _cpu

    found = {
        one.metric: one.value
        for one in measure_limits("cpu", budget_s=budget_s)
        if one.dims.get("using") == "all"
    }
    table = torch.zeros(256 << 17, dtype=torch.int64)  # 256 MiB, beyond any cache
    order = torch.randint(0, table.numel() // 8, (1 << 21,))
    read = partial(_cpu.read_lines, table, order, torch.get_num_threads())
    return {
        "copy": found["bandwidth"],
        "lines": order.numel() / best_time(read, budget_s / 4),
        "products": found["product_rate"],
    }


@dataclass(frozen=True)
class Work:
    """Minimum work of one call.

    Attributes:
        moved: bytes read and written, each array once; gathered rows as often as they are gathered.
        lines: random cache lines, where those bound the operator.
        products: floating point operations, where those do.
        size: of the input, in words.
    """

    size: str
    moved: int
    lines: int = 0
    products: int = 0

    @property
    def bound(self) -> str:
        """The limit that is named beside the time."""
        return "lines" if self.lines else "products" if self.products else "copy"

    @property
    def amount(self) -> int:
        """Amount of the bounding resource."""
        return {"copy": self.moved, "lines": self.lines, "products": self.products}[self.bound]
