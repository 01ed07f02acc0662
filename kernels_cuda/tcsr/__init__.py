"""A temporal graph as sorted rows: built from all edges, sampled by a search in each root's row."""

from dgbench.kernels_cuda.tcsr.op import Tcsr, build_tcsr, sample_tcsr, sample_tcsr_hops

__all__ = ["Tcsr", "build_tcsr", "sample_tcsr", "sample_tcsr_hops"]
