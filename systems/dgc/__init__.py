"""DGC: training on dynamic graphs partitioned by chunks."""
