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
    "dim": (int, "floats of a vertex"),
    "overlap_rate": (float, "edges in all snapshots of a group over the mean edges of one"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # PiPAD
        "operation_time": "a call of an operator, or a piece of work that is timed by itself",
        "spent_time": "what a part of the machine was busy or waited in a step; parts may overlap",
        "analysis_time": "processor time of the analysis of a sequence of snapshots",
        "profiled_step_time": "a step as a tuner was told of it",
        "profiled_aggregation_time": "aggregations of a step as a tuner was told of them",
        "compile_time": "compiling before the first step",
        "worker_time": "what one of several workers computes, summed over launches",
    },
    "rate": {
        # PiPAD
        "edge_rate": "edges that are aggregated",
        "bandwidth": "bytes that are read and written",
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
        # PiPAD
        "epochs": "epochs of a whole run",
        "frames": "frames of an epoch",
        "groups": "groups of snapshots that are worked on together",
        "partition_size": "snapshots of a partition, the most frequent choice",
        "recompilations": "graphs that were compiled after preparation",
        "rows": "rows of matrices",
        "slices": "slices that rows are cut into",
        "length": "entries or floats of one of a thing: a feature vector, a slice, a request",
        "words": "words of four bytes that a topology takes",
        "mismatches": "matrices of another size than a printed formula has",
        "requests": "loads of a warp",
        "transactions": "sectors of 32 bytes that loads read",
        "workers": "workers that items are handed out to",
        "readings": "readings of a probe",
    },
    "bytes": {
        "host_to_device": "what is sent to the device, counted where it is sent",
        "host_to_device_moved": "what a copy into device memory moved, its padding too",
        "host_to_device_plain": "what would be sent if every snapshot were sent whole",
        "device_to_host": "what is read back from the device",
        "topology_sent": "adjacency among what is sent to the device",
        "features_sent": "features among what is sent to the device",
        "memory": "what is held",
        # PiPAD
        "buffer_memory": "buffer on the device from frame to frame",
        "store_memory": "store of results or features on the host",
        "analysis_memory": "results of an analysis that are kept",
        "peak_memory": "what a snapshot's forward pass keeps at most",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        # PiPAD
        "slowdown": "time of the setting over time of the baseline",
    },
    "score": {
        "loss": "loss of a step or an epoch",
        # PiPAD
        "worker_cycles": "clock cycles of one of several workers, summed over launches",
        "imbalance": "largest over mean work of workers",
        "sparsity": "vertices over edges, summed over snapshots",
    },
    "share": {
        # PiPAD
        "topology_change": "1 - |A and B| / |A or B| of the edges of adjacent snapshots, mean",
        "overlap": "edges in all snapshots of a group over the mean edges of one",
        "time_share": "part of a step or of a whole run",
        "utilisation": "time or lanes in use",
        "saving": "what is not needed of what the baseline needs",
        "empty_share": "rows or places that hold nothing",
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
