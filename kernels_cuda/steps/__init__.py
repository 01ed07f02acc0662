"""Whole training steps as one compiled call. Import from here."""

from dgbench.kernels_cuda.steps.op import (
    Adam,
    FlatParameters,
    FrameProduct,
    evolvegcn_step,
    mpnn_lstm_step,
    tgcn_model_step,
)

__all__ = [
    "Adam",
    "FlatParameters",
    "FrameProduct",
    "evolvegcn_step",
    "mpnn_lstm_step",
    "tgcn_model_step",
]
