"""Numbers taken from outside the measured process."""

from dgbench.harness.probes.cpu import MachineActivity, Tree
from dgbench.harness.probes.nvml import GpuSampler, Nvml

__all__ = ["GpuSampler", "MachineActivity", "Nvml", "Tree"]
