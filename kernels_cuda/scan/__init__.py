"""Recurrent scans: all T steps of a GRU or an LSTM over all vertices in one compiled call."""

from dgbench.kernels_cuda.scan.evolve import evolve_gru
from dgbench.kernels_cuda.scan.op import gru_scan, lstm_scan
from dgbench.kernels_cuda.scan.packed import CONTINUES, FROM_ZERO, packed_gru_scan, packed_lstm_scan
from dgbench.kernels_cuda.scan.time_lstm import plain_gates, time_lstm_gates

__all__ = [
    "CONTINUES",
    "FROM_ZERO",
    "evolve_gru",
    "gru_scan",
    "lstm_scan",
    "packed_gru_scan",
    "packed_lstm_scan",
    "plain_gates",
    "time_lstm_gates",
]
