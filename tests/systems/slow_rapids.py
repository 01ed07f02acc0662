"""Slow stand-in on the CPU for the parts of pylibcugraph that are called.

It follows the documented calls of 26.10: argument names, dtypes, disjoint labels, offsets by label
and hop. Times are compared as int64; `last` ranks them as float64, as the library does.
"""

from __future__ import annotations

import random
import sys
from types import ModuleType, SimpleNamespace

import numpy as np


def install(monkeypatch, library) -> None:
    """Put a stand-in of pylibcugraph, and cupy with it, where imports find them."""
    cupy = ModuleType("cupy")
    cupy.from_dlpack = lambda tensor: np.from_dlpack(tensor)
    module = ModuleType("pylibcugraph")
    module.__spec__ = SimpleNamespace(name="pylibcugraph")
    for name in ("ResourceHandle", "GraphProperties", "SGGraph", "neighbor_sample"):
        if hasattr(library, name):
            setattr(module, name, getattr(library, name))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pylibcugraph", module)


class SlowCuGraph:
    """pylibcugraph's names.

    Args:
        last: whether `neighbor_selection="last"` is implemented.
        strict: whether edges of the bound's own time are left out, as documented.
    """

    def __init__(self, *, last: bool = True, strict: bool = True) -> None:
        self.last, self.strict, self.calls = last, strict, 0
        self.neighbor_sample = self._sample

    class ResourceHandle:
        pass

    class GraphProperties:
        def __init__(self, *, is_symmetric: bool, is_multigraph: bool) -> None:
            assert is_multigraph, "parallel edges would be merged"
            assert not is_symmetric

    class SGGraph:
        def __init__(
            self, handle, properties, sources, targets, *, weight_array, store_transposed,
            renumber, do_expensive_check, edge_id_array, edge_start_time_array, vertices_array,
            drop_self_loops, drop_multi_edges, symmetrize,
        ) -> None:  # fmt: skip
            assert not any((renumber, drop_self_loops, drop_multi_edges, symmetrize))
            assert sources.dtype == targets.dtype == edge_id_array.dtype == vertices_array.dtype
            assert edge_start_time_array.dtype == np.int64
            self.type = sources.dtype
            self.edges: dict[int, list[tuple[int, int, int]]] = {}
            rows = zip(
                sources.tolist(), targets.tolist(), edge_id_array.tolist(),
                edge_start_time_array.tolist(), strict=True,
            )  # fmt: skip
            for source, target, eid, time in rows:
                self.edges.setdefault(source, []).append((target, eid, time))

    def _sample(
        self, handle, graph, starts, fanouts, *, starting_vertex_start_times=None,
        starting_vertex_end_times=None, starting_vertex_label_offsets=None, with_replacement,
        do_expensive_check, disjoint_sampling=False, return_hops=False, random_state=None,
        temporal_sampling_comparison=None, neighbor_selection="random", fixed_window=False,
    ):  # fmt: skip
        if neighbor_selection == "last" and not self.last:
            raise NotImplementedError("'last' is not yet implemented")
        assert starts.dtype == graph.type
        assert fanouts.dtype == np.int32
        assert disjoint_sampling, "temporal sampling needs it"
        assert return_hops
        assert not with_replacement
        assert starting_vertex_label_offsets.tolist() == list(range(len(starts) + 1))
        self.calls += 1
        draw = random.Random(random_state)
        edges, offsets = [], [0]
        for label, start in enumerate(starts.tolist()):
            end = int(starting_vertex_end_times[label])
            front = [(start, end)]
            for fanout in fanouts.tolist():
                reached = []
                for vertex, bound in front:
                    may = graph.edges.get(vertex, [])
                    if fixed_window:
                        begin = int(starting_vertex_start_times[label])
                        may = [e for e in may if begin <= e[2] <= end]
                    else:
                        assert temporal_sampling_comparison == "strictly_decreasing"
                        may = [
                            e for e in may if e[2] < bound or (not self.strict and e[2] == bound)
                        ]
                    if neighbor_selection == "last":
                        may = sorted(may, key=lambda e: -float(e[2]))[:fanout]
                    else:
                        may = draw.sample(may, min(fanout, len(may)))
                    reached += may
                edges += [eid for _, eid, _ in reached]
                offsets.append(len(edges))
                front = [(target, time) for target, _, time in reached]
        return {
            "edge_id": np.asarray(edges, dtype=graph.type),
            "label_hop_offsets": np.asarray(offsets, dtype=np.int64),
        }
