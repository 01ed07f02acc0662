"""Precision of float32 products on a device."""

from __future__ import annotations


def plain_products() -> None:
    """Let a CUDA device multiply float32 in float32.

    torch lets cuDNN, whose LSTM and GRU a baseline may run, round factors to TF32 unless told
    otherwise. That is 1e-3 off where 1e-5 is allowed, and no contender here has asked for it.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
