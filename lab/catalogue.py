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
    # DGC
    "turn": (int, "number of a turn of the settings that a process compares, from 0"),
    "quarter": (int, "which of four equal runs of snapshots, from 1"),
    "presence": (str, "rule by which a vertex counts as present in a snapshot"),
    "quantile": (float, "quantile of a distribution; 1 is its largest value"),
    "bin": (int, "number of a point of a distribution's grid, from 0"),
    "limit": (float, "distance up to which values are counted"),
    "ends": (str, "how a synthetic graph joins its vertices"),
    "level": (float, "standard deviation over mean of what varies in a synthetic graph"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # DGC
        "window": "what a snapshot covers of the timeline",
        "projected_time": "a part of an epoch, projected to another machine and not measured",
        "pass_time": "a forward and a backward pass of an encoder or an operator",
    },
    "rate": {
        # DGC
        "throughput": "what is measured or copied in a second",
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
        # DGC
        "vertex_steps": "vertices, counted in each snapshot where they are present",
        "epochs": "epochs of a training",
        "stages": "segments of sequences that run one after another",
        "messages": "messages between ranks",
        "exchanges": "exchanges between ranks in a forward pass",
        "scored": "vertices whose predictions are scored",
        "remote_steps": "steps of its own entity that a vertex needs of other workers, at most",
        "edge_weight": "weight of edges, as floats that are sent where they are cut",
        "chunks": "chunks of a partition, fused ones once",
        "partitions": "partitions that are made",
        "boundary_rows": "rows that another worker or chunk reads",
        "rows_sent": "rows that are sent to other workers",
        "rows_loaded": "rows that are loaded, repeated ones as well",
        "padding": "floats between sequences that hold nothing",
        "hidden_size": "hidden layers or units of a network",
    },
    "bytes": {
        "host_to_device": "what is sent to the device, counted where it is sent",
        "host_to_device_moved": "what a copy into device memory moved, its padding too",
        "host_to_device_plain": "what would be sent if every snapshot were sent whole",
        "device_to_host": "what is read back from the device",
        "topology_sent": "adjacency among what is sent to the device",
        "features_sent": "features among what is sent to the device",
        "memory": "what is held",
        # DGC
        "exchanged": "what workers send one another",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        # DGC
        "divergence": "time of the slowest over that of the fastest",
        "imbalance": "work of the worker that has most over the mean",
        "span": "vertices that a recurrence runs one after another, in even shares of workers",
        "skew": "quantile over the median",
        "predicted_memory": "memory by a formula over measured memory",
    },
    "score": {
        "loss": "loss of a step or an epoch",
        # DGC
        "gini_index": "Gini index: 0 where all are equal, near 1 where one holds everything",
        "mean_count": "mean number of vertices or edges",
        "threshold": "threshold of stale rows, in largest distances",
        "distance": "Euclidean distance that embeddings move in an epoch",
        "deviation": "largest relative deviation from what it is compared with",
        "training_chunks": "chunks that a predictor was trained on, as many as there was time for",
    },
    "share": {
        # DGC
        "accuracy": "share of right predictions",
        "cumulative_share": "share of values up to a limit",
        "row_share": "share of rows that are sent, or held back",
        "prediction_error": "mean relative gap between predicted and measured times",
        "utilisation": "share of time or memory of a device that is in use",
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
