"""DGC: training dynamic graphs with graph partitioning by chunks (Chen, Li, Wu).

The parts of the partition (section 3): `supergraph` makes vertex-steps and chunks of them,
`assignment` gives chunks to workers.
"""
