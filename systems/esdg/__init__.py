"""ESDG (Chakaravarthy et al., SC 2021): full-batch training of a timeline, in blocks."""

from dgbench.systems.esdg.system import EsdgSystem, EsdgTrainer

__all__ = ["EsdgSystem", "EsdgTrainer"]
