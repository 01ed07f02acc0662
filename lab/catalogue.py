"""All metrics and dimensions that dgbench's own papers observe, with what each of them means.

A metric is taken from here before a new one is made: what differs by a setting, a dataset or a
number is one metric with a dimension. See `metrics` for the rules of names.
"""

from __future__ import annotations

from typing import Final

DIMENSIONS: Final[dict[str, tuple[type, str]]] = {
    "dataset": (str, "name of a dataset's card"),
    "model": (str, "name of a model"),
    "system": (str, "name of a system"),
    "setting": (str, "one of the settings that a process compares"),
    "baseline": (str, "the setting that a ratio is over"),
    "phase": (str, "part of a step"),
    "method": (str, "way to do the same thing"),
    "format": (str, "way to hold or send the same thing"),
    "task": (str, "what is predicted"),
    "link": (str, "what carries bytes: pcie, nvlink, a network"),
    "of": (str, "which of several like things: nodes or edges, rows or columns"),
    "ranks": (int, "processes or devices that train together"),
    "epoch": (int, "number of an epoch, from 0"),
    "round": (int, "number of a round of continuous training, from 0"),
    "width": (int, "columns of a matrix"),
    "size": (int, "how many are worked on in one call"),
    "batch": (int, "events or vertices of a batch"),
    "blocks": (int, "blocks that a timeline is trained in"),
    "layers": (int, "layers of a network"),
    "seed": (int, "seed of what is drawn"),
    # PiPAD
    "snapshots_together": (int, "snapshots that are worked on in one call (S_per)"),
    "cap": (int, "entries that a slice holds at most"),
    # GNNFLOW
    "policy": (str, "rule by which neighbours are drawn: recent or uniform"),
    "capacity": (float, "slots of a cache, in multiples of the paper's share"),
    "machines": (int, "machines that a graph is partitioned over"),
    "tau": (int, "threshold of the adaptive block size"),
    "turn": (int, "number of a turn of the settings that a process compares, from 0"),
    "bin": (int, "number of a point of a distribution's grid, from 0"),
    "statistic": (str, "which of several numbers of the same thing"),
    "clock": (str, "wall or processor"),
    "scaled_by": (str, "what of a device its computing time is projected by"),
    "epochs_per_round": (int, "epochs that a round's new events are trained on"),
    "dtype": (str, "type of floats, where it is not float32"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # GNNFLOW
        "round_time": "a round of continuous training: the graph's update and its epochs",
        "operation_time": "an operation that is timed by itself",
        "window": "what is covered of a timeline",
    },
    "rate": {
        # GNNFLOW
        "throughput": "events, edges or vertices that are worked on",
        "projected_throughput": "throughput of more or other devices, projected",
    },
    "count": {
        "counted_steps": "steps that the counts of a process are totals of",
        "turns": "turns of the settings that a process compares",
        "vertices": "vertices of a graph",
        "edges": "edges of a graph",
        "snapshots": "snapshots of a sequence",
        "aggregations": "aggregations over neighbours that are computed",
        "reused_aggregations": "aggregations over neighbours that are taken from an earlier frame",
        "edges_aggregated": "edges that aggregations go over",
        "transfers": "copies to the device",
        # GNNFLOW
        "events": "events of a stream",
        "batches": "batches of an epoch or an insertion",
        "batch_size": "events of a batch",
        "rounds": "rounds of continuous training",
        "epochs": "epochs of a training or a round",
        "threads": "threads that work on the host",
        "devices": "devices that a machine has",
        "processors": "processors of a host",
        "columns": "floats of a feature",
        "targets": "vertices whose neighbours are sampled",
        "requests": "rows or records that are asked for",
        "records": "edge records that are stored or sent",
        "slots": "slots of a cache, or of the blocks of a graph",
        "list_blocks": "blocks on the lists of vertices",
        "comparisons": "times that a search compares",
    },
    "bytes": {
        "host_to_device": "what is sent to the device, counted where it is sent",
        "host_to_device_moved": "what a copy into device memory moved, its padding too",
        "host_to_device_plain": "what would be sent if every snapshot were sent whole",
        "device_to_host": "what is read back from the device",
        "topology_sent": "adjacency among what is sent to the device",
        "features_sent": "features among what is sent to the device",
        "memory": "what is held",
        # GNNFLOW
        "exchanged": "what machines send one another",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        # GNNFLOW
        "imbalance": "the largest over the mean of all",
        "scale_factor": "what a number is multiplied up by",
    },
    "score": {
        "loss": "loss of a step or an epoch",
        # GNNFLOW
        "average_precision": "average precision of edges against negatives",
        "gini_index": "Gini index: 0 where all are equal, near 1 where one holds everything",
        "likelihood_z": "z score of the likelihood of a power law over an exponential law",
        "tail_exponent": "exponent of a power law that is fitted",
        "decay_rate": "rate of an exponential law that is fitted",
        "distribution_gap": "distance of Kolmogorov and Smirnov",
        "variation": "standard deviation over mean",
        "estimate": "a size or a count by a plan, a formula or a mean, so no integer",
    },
    "share": {
        # GNNFLOW
        "hit_rate": "requests that a cache answers",
        "time_share": "a part of the time in the whole",
        "overlap": "what two sets have in common",
        "portion": "part of a whole",
        "excess": "how much more than the mean the fullest has",
    },
}
"""Kind -> name -> what it is. See `metrics.UNITS` for the unit of a kind."""

METER_METRICS: Final[dict[str, str]] = {
    "bytes_h2d_counted": "host_to_device",
    "bytes_h2d": "host_to_device",
    "bytes_h2d_moved": "host_to_device_moved",
    "bytes_d2h": "device_to_host",
    "raw_bytes_counted": "host_to_device_plain",
    "adjacency_bytes_counted": "topology_sent",
    "bytes_topology": "topology_sent",
    "bytes_features": "features_sent",
    "bytes_swapped": "swapped",
    "bytes_recorded": "recorded",
    "cache_bytes_missed": "cache_missed",
    "reuse_bytes": "reuse_memory",
    "stale_index_bytes": "stale_index_memory",
    "graph_bytes_sent": "graph_sent",
}
"""Name of a meter's counter -> its metric, where they differ."""
