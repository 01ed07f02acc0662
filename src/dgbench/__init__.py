"""dgbench: races and checks systems that train graph neural networks on dynamic graphs."""

__version__ = "0.1.0"
