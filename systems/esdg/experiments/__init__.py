"""ESDG's experiments, in the order of the paper."""

EXPERIMENTS = ()
