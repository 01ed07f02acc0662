"""T-GCN's experiments, in the order of the paper."""
