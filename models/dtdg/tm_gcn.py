"""TM-GCN (Malik et al., "Dynamic graph convolutional networks using the tensor M-product", 2021)
with two layers, as ESDG runs it (SC 2021, section 2). Not T-GCN, neither model nor system."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.models.frame import GcnLayer
from dgbench.models.timeline import Carry, TimelineModel
from dgbench.runtime.fields import check_count


def m_average(x: Tensor, before: Tensor, window: int) -> Tensor:
    """The M-transform of a block of a timeline: each step becomes the mean of the last min(w, t).

    M[t, k] = 1 / min(w, t) for max(1, t - w + 1) <= k <= t, t from the start of the timeline.

    Args:
        x: [T, ...], the block.
        before: [min(s, w - 1), ...], the last of the s steps before the block. As many steps are
            missing to w - 1 as the timeline is short of, so no step number is needed.
        window: w >= 1.

    Returns:
        [T, ...]; differentiable in both.
    """
    steps, short = x.shape[0], before.shape[0]
    # One product with the rows of M that belong to the block, so that neither a long window costs
    # passes nor a running sum costs digits.
    t = torch.arange(short, short + steps, device=x.device).unsqueeze(1)
    back = t - torch.arange(short + steps, device=x.device)  # [T, short + T]
    band = ((back >= 0) & (back < window)).to(x.dtype)
    rows = band / band.sum(1, keepdim=True)
    return torch.tensordot(rows, torch.cat([before, x]), dims=1)


class TmGcn(TimelineModel):
    """relu(A-hat X W1), M-transform over time, relu(A-hat X W2).

    The M-transform of the input is preprocessing (`datasets.transforms.m_transform_features`, and
    `m_transform` for the adjacency) and none follows the second layer: this is the reading under
    which the paper's Table 2 comes out, one round trip of width H per pass. Convolutions have no
    bias.

    Attributes:
        window: w of the M-transform; the paper does not print it.
        conv_1, conv_2: W of each layer.
    """

    num_layers = 2

    def __init__(self, feature_dim: int, hidden_dim: int, window: int) -> None:
        super().__init__()
        check_count("window", window)
        self.feature_dim = feature_dim
        self.hidden_dim = self.output_dim = hidden_dim
        self.window = window
        self.input_dims = (feature_dim, hidden_dim)
        self.spatial_dims = self.layer_dims = (hidden_dim, hidden_dim)
        self.conv_1 = GcnLayer(feature_dim, hidden_dim, bias=False)
        self.conv_2 = GcnLayer(hidden_dim, hidden_dim, bias=False)

    def spatial(self, layer: int, aggregated: Tensor, link: Any = None) -> Tensor:
        return torch.relu((self.conv_1, self.conv_2)[layer].by_step(aggregated))

    def has_temporal(self, layer: int) -> bool:
        return layer == 0

    def temporal(self, layer: int, x: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """The M-transform; the carry is the last w - 1 inputs (fewer at first), [k, rows, H]."""
        before = carry[0] if carry else x[:0]
        out = m_average(x, before, self.window)
        series = torch.cat([before, x])
        keep = min(self.window - 1, series.shape[0])
        return out, (series[series.shape[0] - keep :],)

    def state_dim(self) -> int:
        return self.hidden_dim * (self.window - 1)
