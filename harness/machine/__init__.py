"""Facts about the machine, where rows come from, and the machine's limits."""

from dgbench.harness.machine.facts import cpu_facts, gpu_count, machine_facts
from dgbench.harness.machine.limits import measure_limits
from dgbench.harness.machine.provenance import provenance

__all__ = [
    "cpu_facts",
    "gpu_count",
    "machine_facts",
    "measure_limits",
    "provenance",
]
