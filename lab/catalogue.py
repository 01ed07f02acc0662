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
    # T-GCN
    "layer": (int, "number of a layer of a network, from 1"),
    "piece": (int, "number of a piece of a stream, from 0"),
    "bin": (int, "number of a bin of a histogram, from 0"),
    "hops": (int, "links that are passed on the way between two devices"),
    "p2p": (str, "on or off: copies between devices that do not pass the host"),
    "skew": (float, "exponent of Zipf's law by which vertices are drawn"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # T-GCN
        "edge_time": "a labelled edge of training",
        "part_time": "a part of an epoch or an interval, scaled to it where less was run",
        "sampling_time": "a call of a sampler, or one of its draws",
    },
    "rate": {
        # T-GCN
        "throughput": "edges or events that are worked on",
        "bandwidth": "bytes that a link carries",
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
        # T-GCN
        "draw_work": "draws, those repeated, and nodes and elements read and written by them",
        "devices": "devices that train together, or that a machine has",
        "processors": "processors of a host or a device",
        "parts": "parts that a graph, a stream or a round is cut into",
        "links": "links of devices, or pairs of devices that have them",
        "feature_width": "columns of the features of an edge",
    },
    "bytes": {
        "host_to_device": "what is sent to the device, counted where it is sent",
        "host_to_device_moved": "what a copy into device memory moved, its padding too",
        "host_to_device_plain": "what would be sent if every snapshot were sent whole",
        "device_to_host": "what is read back from the device",
        "topology_sent": "adjacency among what is sent to the device",
        "features_sent": "features among what is sent to the device",
        "memory": "what is held",
        # T-GCN
        "swapped": "what devices pass on to each other, or exchange with the host",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        # T-GCN
        "growth": "time at a size over time at the next smaller one",
        "imbalance": "the largest over the mean of all",
        "relative_size": "what is sent or held over that of the baseline",
    },
    "score": {
        "loss": "loss of a step or an epoch",
        # T-GCN
        "accuracy": "vertices or edges whose class is predicted right, over all",
        "average_precision": "average precision of edges against negatives",
        "degree": "edges of a vertex: their mean, the largest, those that are sampled",
        "tail_exponent": "exponent of a power law that is fitted to a tail of degrees",
        "likelihood_z": "z score of the likelihood of a power law over an exponential law",
        "distribution_gap": "distance of Kolmogorov and Smirnov",
        "busy_devices": "devices that train at a time, on average",
        "derived_number": "number that follows from printed ones",
        "deviation": "largest relative deviation from a reference",
    },
    "share": {
        # T-GCN
        "portion": "vertices or grids of a kind among all",
        "time_share": "a part of the time in the whole",
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
