"""Whole training steps as one compiled call. Import from here."""

from dgbench.kernels_cuda.steps.op import Adam, FlatParameters, tgcn_model_step

__all__ = ["Adam", "FlatParameters", "tgcn_model_step"]
