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
    "turn": (int, "number of a turn of contenders inside a process, from 0"),
    "place": (str, "where bytes lie and go, or work is done: host, device, host to device"),
    "cores": (str, "one or all of the cores that a process may use"),
    # PiPAD
    "snapshots_together": (int, "snapshots that are worked on in one call (S_per)"),
    "cap": (int, "entries that a slice holds at most"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # OPERATORS
        "call_time": "a call of an operator",
    },
    "rate": {
        # What is said of a rate is what it counts: "edges" are edges a second.
        "copy_rate": "bytes copied",
        "edge_rate": "edges",
        "product_rate": "floating-point operations of a matrix product",
        # OPERATORS
        "bandwidth": "bytes that are read and written",
        "throughput": "items that are worked on",
    },
    "count": {
        "counted_steps": "steps that the counts of a process are totals of",
        "turns": "turns of the settings that a process compares",
        "threads_used": "threads that a limit was measured with",
        "vertices": "vertices of a graph",
        "edges": "edges of a graph",
        "snapshots": "snapshots of a sequence",
        "aggregations": "aggregations over neighbours that are computed",
        "reused_aggregations": "aggregations over neighbours that are taken from an earlier frame",
        "edges_aggregated": "edges that aggregations go over",
        "transfers": "copies to the device",
        # OPERATORS
        "sequences": "sequences of steps",
        "steps": "steps of sequences, with padding where a method has it",
    },
    "bytes": {
        "host_to_device": "what is sent to the device, counted where it is sent",
        "host_to_device_moved": "what a copy into device memory moved, its padding too",
        "host_to_device_plain": "what would be sent if every snapshot were sent whole",
        "device_to_host": "what is read back from the device",
        "topology_sent": "adjacency among what is sent to the device",
        "features_sent": "features among what is sent to the device",
        "memory": "what is held",
        # OPERATORS
        "difference_size": "a snapshot as it is sent: as a difference, or plain",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        # OPERATORS
        "imbalance": "largest over mean of all",
    },
    "score": {
        "loss": "loss of a step or an epoch",
    },
    "share": {
        # OPERATORS
        "cut": "edge weight between parts of a partition",
        "hit_rate": "requests that a cache answers",
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
