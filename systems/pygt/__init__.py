"""The released PyG-Temporal cells, and the paper's three steps from them towards PiPAD."""

from dgbench.systems.pygt.system import PyGTASystem, PyGTGSystem, PyGTRSystem, PyGTSystem

__all__ = ["PyGTASystem", "PyGTGSystem", "PyGTRSystem", "PyGTSystem"]
