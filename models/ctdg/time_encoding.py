"""Time as a vector (TGAT, Xu et al. 2020, section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class TimeEncoding(nn.Module):
    """phi(dt) = cos(w dt + b), w and b trained; w begins as powers from 1 to 1e-9.

    With these, differences from one second to decades are told apart.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter((10.0 ** -torch.linspace(0, 9, dim)).unsqueeze(1))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, age: Tensor) -> Tensor:
        """[...] -> [..., dim]."""
        # A product of matrices, whose derivative is one too, not a sum over a tensor in memory.
        return torch.cos(functional.linear(age.unsqueeze(-1), self.weight, self.bias))

    def now(self, rows: int) -> Tensor:
        """phi(0), [rows, dim] without memory of its own."""
        return torch.cos(self.bias).expand(rows, self.dim)
