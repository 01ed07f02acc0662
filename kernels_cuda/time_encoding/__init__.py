"""Cosines and sines of ages times frequencies, for encodings of time."""

from dgbench.kernels_cuda.time_encoding.op import encode_ages, serves_ages

__all__ = ["encode_ages", "serves_ages"]
