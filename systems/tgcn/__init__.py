"""T-GCN: streaming graph networks with sampling on the CPU and training on several GPUs."""
