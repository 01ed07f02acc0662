"""The reference: plain PyTorch, one snapshot at a time, nothing cached between frames."""

from dgbench.systems.reference.compiled import CompiledSystem, CompiledTrainer
from dgbench.systems.reference.system import ReferenceSystem, ReferenceTrainer

__all__ = ["CompiledSystem", "CompiledTrainer", "ReferenceSystem", "ReferenceTrainer"]
