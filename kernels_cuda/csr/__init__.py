"""The one sparse layout that every operator takes."""

from dgbench.kernels_cuda.csr.csr import Csr

__all__ = ["Csr"]
