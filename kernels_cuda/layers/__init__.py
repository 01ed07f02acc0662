"""The dense half of GCN layers over a whole frame, with what follows it, as compiled operators."""

from dgbench.kernels_cuda.layers.op import dense_norm, frame_dense

__all__ = ["dense_norm", "frame_dense"]
