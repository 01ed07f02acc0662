"""Sequences of falling length as torch's PackedSequence runs them: the control of packed rows.

At each step only the sequences that are that long take part. There is no padding, but a step is as
narrow as few sequences are long, and each is a call of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from dgbench.models.dtdg.mpnn_lstm_bare import MpnnLstmBare
from dgbench.models.dtdg.tgcn_2layer import TgcnTwoLayer
from dgbench.models.sequence import SequenceModel, masked_state
from dgbench.runtime.errors import UnsupportedError


class FallingRows:
    """Rows of falling length, one sequence each.

    Attributes:
        sizes: int64[T] on the CPU, the sequences of at least t + 1 steps.
        place: int64[V], where each step of the sequences lies in rows laid out as [T * N], all
            first steps before all second ones.
    """

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        count, longest = lengths.numel(), int(lengths.max()) if lengths.numel() else 0
        there = torch.arange(longest)[:, None] < lengths[None, :]
        self.sizes = there.sum(1)
        self.place = there.view(-1).nonzero().squeeze(1).to(device)
        self.count = count


def run_packed_sequence(
    model: SequenceModel,
    x: Tensor,
    rows: FallingRows,
    begins: Tensor,
    states: tuple[Tensor, ...] | None,
) -> tuple[Tensor, list[Tensor]]:
    """The time encoder over packed sequences.

    Args:
        model: a recurrent one.
        x: [T, N, W].
        rows: of these N sequences.
        begins: int32[N], of their first steps: FROM_ZERO or a row of `states`.
        states: [S, d] each; None where all begin from zero.

    Returns:
        [T, N, D], zero where a row holds nothing; the last states of the sequences, [N, d] each.

    Raises:
        UnsupportedError: a model that is not a recurrence of ours.
    """
    data = x.reshape(-1, x.shape[2]).index_select(0, rows.place)
    given = states if states is not None else (None,) * len(model.state_dims)
    dims = zip(given, model.state_dims, strict=True)
    start = [masked_state(begins, x.new_zeros(rows.count, d), s) for s, d in dims]
    if isinstance(model, MpnnLstmBare):
        out, ends = _lstms(model, data, rows.sizes, start)
    elif isinstance(model, TgcnTwoLayer):
        out, ends = _gru(model, data, rows.sizes, start[0])
    else:
        raise UnsupportedError(
            f"{type(model).__name__} has no recurrence that a PackedSequence could hold",
            hint="temporal='packed' or 'padded'",
        )
    flat = out.new_zeros(x.shape[0] * x.shape[1], out.shape[1])
    return flat.index_copy(0, rows.place, out).view(*x.shape[:2], -1), ends


def _lstms(
    model: MpnnLstmBare, data: Tensor, sizes: Tensor, start: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    ends: list[Tensor] = []
    for layer, lstm in enumerate((model.lstm_1, model.lstm_2)):
        h, c = start[2 * layer : 2 * layer + 2]
        out, last = lstm(PackedSequence(data, sizes), (h.unsqueeze(0), c.unsqueeze(0)))
        data = out.data
        ends += [state.squeeze(0) for state in last]
    return data, ends


def _gru(
    model: TgcnTwoLayer, data: Tensor, sizes: Tensor, h: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """torch's GRU resets behind its product, this one before it, so it is run step by step."""
    w_in, w_hid, bias = model.scan_weights()
    width = model.hidden_dim
    gates = (data @ w_in + bias).split(sizes.tolist())
    outs, ended = [], []
    for step in gates:
        ended.append(h[step.shape[0] :])  # sequences that were over before this step
        h = h[: step.shape[0]]
        z, r = torch.sigmoid(step[:, : 2 * width] + h @ w_hid[:, : 2 * width]).chunk(2, dim=1)
        c = torch.tanh(step[:, 2 * width :] + (r * h) @ w_hid[:, 2 * width :])
        h = z * h + (1 - z) * c
        outs.append(h)
    ended.append(h)
    return torch.cat(outs), [torch.cat(ended[::-1])]
