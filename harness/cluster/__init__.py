"""Runs on a cluster: each group of cells is one element of a job array, merged into one run.

`config` reads the cluster file, `submission` keeps what was asked for, `shard` runs a group on its
node, `jobs` submits and watches through submitit, `checks` and `collect` merge.
"""

from dgbench.harness.cluster.collect import collect
from dgbench.harness.cluster.config import ClusterFile, read_cluster
from dgbench.harness.cluster.jobs import Jobs, submit
from dgbench.harness.cluster.submission import Submission

__all__ = ["ClusterFile", "Jobs", "Submission", "collect", "read_cluster", "submit"]
