"""Workloads at stated sizes that times on an H200 were predicted for, family by family."""
