"""The reference: plain PyTorch, one snapshot at a time, nothing cached between frames."""

from dgbench.systems.reference.system import ReferenceSystem, ReferenceTrainer

__all__ = ["ReferenceSystem", "ReferenceTrainer"]
