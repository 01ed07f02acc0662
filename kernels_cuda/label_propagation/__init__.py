"""Weighted label propagation with a cap on label sizes: the chunks of DGC (section 3.3, eq. 2)."""

from dgbench.kernels_cuda.label_propagation.op import LabelRun, propagate_labels, sweep_salt

__all__ = ["LabelRun", "propagate_labels", "sweep_salt"]
