"""All metrics and dimensions that dgbench's own papers observe, with what each of them means.

A metric is taken from here before a new one is made: what differs by a setting, a dataset or a
number is one metric with a dimension. See `metrics` for the rules of names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dgbench.lab.metrics import Source

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
    "part": (str, "which of the kinds of cells that an experiment has"),
    "what": (str, "which of the kinds of cells that an experiment has"),
    "case": (str, "name of a prepared workload"),
    "operator": (str, "name of a race of operators"),
    "graphs": (str, "a group of graphs that is worked on in one cell"),
    "weights": (str, "distribution that weights are drawn from"),
    "scale": (float, "share of a graph's printed size that a synthetic one has"),
    "turn": (int, "number of a turn of the settings that a process compares, from 0"),
    "place": (str, "where bytes lie and go, or work is done: host, device, host to device"),
    "using": (str, "one or all of the cores that a process may use"),
    "snapshots_together": (int, "snapshots that are worked on in one call (S_per)"),
    "cap": (int, "entries that a slice holds at most"),
    "counter": (str, "name of a meter's counter"),
    "statistic": (str, "which of several numbers of the same thing"),
    # PiPAD
    "dim": (int, "floats of a vertex"),
    "overlap_rate": (float, "edges in all snapshots of a group over the mean edges of one"),
    # ESDG
    "smoothing": (str, "smoothing of snapshots: none, edge_life or m_transform"),
    "life": (int, "snapshots that an edge lives for, or that a smoothing window spans"),
    "gain": (float, "factor that is to be reached"),
    "budget_share": (float, "memory budget between the least and that of one block, from 0 to 1"),
    "dtype": (str, "type of floats, where it is not float32"),
    "group_size": (int, "ranks that share a snapshot"),
    "pieces": (int, "pieces that an exchange is cut into"),
    "cut": (str, "way to cut the events of a sample into snapshots"),
    "mixing": (float, "share of the edges of planted blocks that leave their block"),
    "transport": (str, "what carries rows between ranks: auto, gloo or backend"),
    # DGC
    "quarter": (int, "which of four equal runs of snapshots, from 1"),
    "presence": (str, "rule by which a vertex counts as present in a snapshot"),
    "quantile": (float, "quantile of a distribution; 1 is its largest value"),
    "bin": (int, "number of a point of a distribution's grid, from 0"),
    "limit": (float, "distance up to which values are counted"),
    "ends": (str, "how a synthetic graph joins its vertices"),
    "level": (float, "standard deviation over mean of what varies in a synthetic graph"),
    # GNNFlow
    "policy": (str, "rule by which neighbours are drawn: recent or uniform"),
    "capacity": (float, "slots of a cache, in multiples of the paper's share"),
    "machines": (int, "machines that a graph is partitioned over"),
    "tau": (int, "threshold of the adaptive block size"),
    "clock": (str, "wall or processor"),
    "scaled_by": (str, "what of a device its computing time is projected by"),
    "top": (int, "rank up to which a true destination counts as a hit"),
    "epochs_per_round": (int, "epochs that a round's new events are trained on"),
    # T-GCN
    "layer": (int, "number of a layer of a network, from 1"),
    "piece": (int, "number of a piece of a stream, from 0"),
    "hops": (int, "links that are passed on the way between two devices"),
    "p2p": (str, "on or off: copies between devices that do not pass the host"),
    "skew": (float, "exponent of Zipf's law by which vertices are drawn"),
    # operators
    "items": (int, "items to draw from"),
    "changed": (float, "entries that changed over entries of a snapshot"),
    "kernel": (str, "name of a kernel of a device"),
    "caches": (str, "cold or warm: whether a device's caches hold the inputs of a call"),
    # arena
    "definition": (str, "digest of the frozen definition of a task"),
}

METRICS: Final[dict[str, dict[str, str]]] = {
    "time": {
        "step_time": "a training step",
        "epoch_time": "an epoch",
        "preparation_time": "work that is done once, before the first step",
        "end_to_end_time": "preparation and all epochs",
        "phase_time": "a part of a step or of an epoch",
        # PiPAD
        "operation_time": "an operation, or passes of an encoder, timed by itself",
        "spent_time": "what a part of the machine was busy or waited in a step; parts may overlap",
        "analysis_time": "processor time of the analysis of a sequence of snapshots",
        "profiled_step_time": "a step as a tuner was told of it",
        "profiled_aggregation_time": "aggregations of a step as a tuner was told of them",
        "compile_time": "compiling before the first step",
        "worker_time": "what one of several workers computes, summed over launches",
        # DGC
        "window": "what a snapshot covers of the timeline",
        "projected_time": "a part of an epoch, projected to another machine and not measured",
        # GNNFlow
        "staleness": "time from the last event that a prediction saw to the predicted one",
        "round_time": "a round of continuous training: the graph's update and its epochs",
        # T-GCN
        "edge_time": "a labelled edge of training",
        "part_time": "a part of an epoch or an interval, scaled to it where less was run",
        "sampling_time": "a call of a sampler, or one of its draws",
        # operators
        "predicted_time": "a call as it was predicted before it was measured",
    },
    "rate": {
        # What is said of a rate is what it counts: "edges" are edges a second.
        "bandwidth": "bytes that are copied, read and written, or sent",
        "throughput": "items",
        "product_rate": "floating-point operations of a matrix product",
        "clock_rate": "clock cycles of a processor",
        # GNNFlow
        "projected_throughput": "throughput of more or other devices, projected",
    },
    "count": {
        "counted_steps": "steps that the counts of a process are totals of",
        "turns": "turns of the settings that a process compares",
        "threads": "threads that a limit was measured with",
        "vertices": "vertices of a graph",
        "edges": "edges of a graph",
        "snapshots": "snapshots of a sequence",
        "aggregations": "aggregations over neighbours that are computed",
        "reused_aggregations": "aggregations over neighbours that are taken from an earlier frame",
        "edges_aggregated": "edges that aggregations go over",
        "transfers": "copies to the device",
        "meter_count": "what a meter counted under a name that is no metric",
        # PiPAD
        "epochs": "epochs of a training",
        "frames": "frames of an epoch",
        "groups": "groups of snapshots that are worked on together",
        "partition_size": "snapshots of a partition, the most frequent choice",
        "recompilations": "graphs that were compiled after preparation",
        "rows": "rows of matrices",
        "slices": "slices that rows are cut into",
        "length": "entries or floats of one of a thing: a feature vector, a slice, a request",
        "words": "words of four bytes that a topology takes",
        "mismatches": "matrices of another size than a printed formula has",
        "requests": "rows, records or loads that are asked for",
        "transactions": "sectors of 32 bytes that loads read",
        "workers": "workers that items are handed out to",
        "readings": "readings of a probe",
        # ESDG
        "changed_edges": "edges that come or go between neighbouring snapshots",
        "smoothing_length": "snapshots that an edge lives for, or that a window spans",
        "events": "events of a stream",
        "columns": "columns of a matrix, or floats of a vertex or a feature",
        "timeline_blocks": "blocks that a timeline is trained in",
        "switches": "techniques that are on: 0 or 1 of each",
        "floats": "floats that ranks send to each other",
        "messages": "messages between ranks",
        "exchanges": "all-to-all exchanges of ranks",
        "remote_reads": "rows that a part of the vertices reads from other parts",
        "parameters": "parameters of a model",
        "processes": "processes or devices",
        "cores": "cores that processes may run on",
        "pairs": "pairs of vertices that are drawn or scored",
        # DGC
        "vertex_steps": "vertices, counted in each snapshot where they are present",
        "stages": "segments of sequences that run one after another",
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
        # GNNFlow
        "batches": "batches of an epoch or an insertion",
        "batch_size": "events of a batch",
        "rounds": "rounds of continuous training",
        "devices": "devices that train together, or that a machine has",
        "processors": "processors of a host or a device",
        "targets": "vertices whose neighbours are sampled",
        "records": "edge records that are stored or sent",
        "slots": "slots of a cache, or of the blocks of a graph",
        "list_blocks": "blocks on the lists of vertices",
        "comparisons": "times that a search compares",
        # T-GCN
        "draw_work": "draws, those repeated, and nodes and elements read and written by them",
        "parts": "parts that a graph, a stream or a round is cut into",
        "links": "links of devices, or pairs of devices that have them",
        # operators
        "launches": "kernels, or other calls of a device's runtime, of a call or a step",
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
        # ESDG
        "exchanged": "what ranks or machines send one another",
        # T-GCN
        "swapped": "what devices pass on to each other, or exchange with the host",
    },
    "ratio": {
        "speedup": "time of the baseline over time of the setting",
        "control_ratio": "time of a setting over its own in another turn: an A/A pair",
        # PiPAD
        "slowdown": "time of the setting over time of the baseline",
        "imbalance": "largest over mean of all, as of the work of workers",
        # DGC
        "divergence": "time of the slowest over that of the fastest",
        "span": "vertices that a recurrence runs one after another, in even shares of workers",
        "quantile_ratio": "quantile over the median",
        "predicted_memory": "memory by a formula over measured memory",
        # GNNFlow
        "scale_factor": "what a number is multiplied up by",
        # T-GCN
        "growth": "time at a size over time at the next smaller one",
        "relative_size": "what is sent or held over that of the baseline",
    },
    "score": {
        "loss": "loss of a step or an epoch",
        # PiPAD
        "mean_squared_error": "mean squared error of predicted values of vertices",
        "mean_absolute_error": "mean absolute error of predicted values of vertices",
        "worker_cycles": "clock cycles of one of several workers, summed over launches",
        "sparsity": "vertices over edges, summed over snapshots",
        # ESDG
        "estimate": "a size or a count by a plan, a formula, a mean or printed numbers: no integer",
        "density": "edges, or parts that read it, of a vertex in a step; mean",
        # DGC
        "gini_index": "Gini index: 0 where all are equal, near 1 where one holds everything",
        "threshold": "threshold of stale rows, in largest distances",
        "distance": "Euclidean distance that embeddings move in an epoch",
        "deviation": "largest relative deviation from what it is compared with",
        "training_chunks": "chunks that a predictor was trained on, as many as there was time for",
        # GNNFlow
        "average_precision": "average precision of edges against negatives",
        "mrr": "mean reciprocal rank of true destinations among their candidates",
        "likelihood_z": "z score of the likelihood of a power law over an exponential law",
        "tail_exponent": "exponent of a power law that is fitted",
        "decay_rate": "rate of an exponential law that is fitted",
        "distribution_gap": "distance of Kolmogorov and Smirnov",
        "variation": "standard deviation over mean",
        # T-GCN
        "degree": "edges of a vertex: their mean, the largest, those that are sampled",
        "busy_devices": "devices that train at a time, on average",
        # arena
        "tuned_setting": "choice of a search: threads, a technique on (1) or off (0); its trials",
    },
    "share": {
        # PiPAD
        "topology_change": "1 - |A and B| / |A or B| of the edges of adjacent snapshots, mean",
        "overlap": "what two or more sets have in common",
        "time_share": "part of the time of a step, an epoch or a run",
        "utilisation": "time, memory or lanes of a device that are in use",
        "saving": "what is not needed of what the baseline needs",
        "empty_share": "rows or places that hold nothing",
        # ESDG
        "portion": "part of a whole",
        "relative_error": "distance from a reference, relative to it",
        "accuracy": "right predictions",
        # DGC
        "cumulative_share": "share of values up to a limit",
        "row_share": "share of rows that are sent, or held back",
        "prediction_error": "mean relative gap between predicted and measured times",
        # GNNFlow
        "hit_rate": "requests that a cache answers",
        "excess": "how much more than the mean the fullest has",
    },
}
"""Kind -> name -> what it is. See `metrics.UNITS` for the unit of a kind."""

SOURCES: Final[dict[str, Source]] = {
    "projected_time": "projected",
    "projected_throughput": "projected",
    "predicted_time": "projected",
    "scale_factor": "projected",
    "imbalance": "counted",
    "span": "counted",
    "quantile_ratio": "counted",
    "predicted_memory": "counted",
    "relative_size": "counted",
    "loss": "learned",
    "average_precision": "learned",
    "mrr": "learned",
    "mean_squared_error": "learned",
    "mean_absolute_error": "learned",
    "staleness": "counted",
    "accuracy": "learned",
    "distance": "learned",
    "worker_cycles": "timed",
    "tuned_setting": "timed",
    "time_share": "timed",
    "prediction_error": "timed",
    "utilisation": "probed",
    "clock_rate": "probed",
    # Mixed: a clock's unless the experiment declares that it counts.
    "portion": "timed",
    "relative_error": "timed",
    "saving": "timed",
    "variation": "timed",
}
"""Metric -> how its numbers are obtained, where that does not follow from its kind. An experiment
that obtains them otherwise declares it in `Experiment.sources`."""

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
}
"""Name of a meter's counter -> its metric, where they differ."""
