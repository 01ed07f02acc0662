"""pylibcugraph's temporal sampler, an optional contender that needs a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import CheckFailed
from dgbench.systems.gnnflow.contenders.base import ContenderEvents
from dgbench.systems.gnnflow.contenders.released import Released

EXACT_TIMES = 2**53
"""Largest time up to which `last` ranks exactly; it compares times as float64."""
_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class CuGraphSample:
    """Sample returned by one call, on the device.

    Attributes:
        roots: int64[Q], the roots that have an edge before their time; only these are asked.
        hops: hops of the call.
        edges: int64[K], edges by root and then by hop.
        offsets: int64[Q * hops + 1], where those of each root and hop begin.
    """

    roots: Tensor
    hops: int
    edges: Tensor
    offsets: Tensor


class CuGraph(Released):
    """pylibcugraph's sampler on a graph that is made anew.

    Every root is a label of its own (disjoint sampling), as a vertex may ask at several times. Each
    hop looks at edges strictly before the one that led there. Whole times go in as int64, as they
    are; others as their rank among all edges' times, so that none is rounded.
    """

    name = "cugraph"
    title = "cuGraph"
    package, module, install = "pylibcugraph-cu13", "pylibcugraph", "pip install 'dgbench[rapids]'"
    note = "samples on the GPU, hop by hop backwards in time"
    device: ClassVar[str] = "cuda"
    """Where arrays lie."""

    @classmethod
    def unavailable(cls) -> str:
        if reason := super().unavailable():
            return reason
        if not hasattr(cls.load(), "neighbor_sample"):
            return f"{cls.package} has no neighbor_sample, 26.10 or later has; {cls.install}"
        if cls.device == "cuda" and not torch.cuda.is_available():
            return f"{cls.package} needs a CUDA device"
        return cls._refusal("uniform")

    @classmethod
    def _refusal(cls, policy: str) -> str:
        """Why a release does not draw by a policy, tried on two edges; "" if it does."""
        ends = torch.tensor([[0, 1], [1, 2]])
        one = cls()
        try:
            one._build(ContenderEvents(3, ends[0], ends[1], torch.tensor([1.0, 2.0]).double()))
            one.sample(torch.tensor([1]), torch.tensor([3.0]).double(), [1], policy)
        except Exception as error:  # a package of others may fail in any way
            said = str(error).splitlines()[0] if str(error) else ""
            return f"{cls.package} does not sample '{policy}': {type(error).__name__}: {said}"
        return ""

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self._draw = 0
        self._library = self.load()
        self._handle = self._library.ResourceHandle()

    def build(self, events: ContenderEvents) -> None:
        refused = self._refusal("recent")
        if refused:
            self.policies = ("uniform",)
        self._build(events)
        self._remarks += [refused] if refused else []

    def add(self, events: ContenderEvents, old: int) -> None:
        self._build(events)

    def remarks(self) -> list[str]:
        return list(self._remarks)

    def _build(self, events: ContenderEvents) -> None:
        count = self._count = len(events)
        self._ranks: Tensor | None = None
        self._remarks: list[str] = []
        times = events.t
        if bool((times == times.floor()).all()):
            times = times.long()
        else:
            self._ranks = times.unique()
            times = torch.searchsorted(self._ranks, times)
            self._remarks.append("fractional times go in as ranks")
        if count and int(times.abs().max()) > EXACT_TIMES:
            self._remarks.append(
                "times above 2^53: its 'last' ranks them as float64, so inexactly "
                "(rapidsai/cugraph-gnn pull request 527)"
            )
        self._begin = int(times.min()) - 1 if count else 0
        # Each edge is one of both its ends, so it stands twice; the second's id is E further on.
        sources = torch.cat([events.src, events.dst])
        first = torch.full((events.num_nodes,), _NEVER)
        first.scatter_reduce_(0, sources, times.repeat(2), "amin")
        self._first = first.to(self.device)
        self._ids = torch.int32 if max(2 * count, events.num_nodes) < 2**31 else torch.int64
        library = self._library
        self._graph = library.SGGraph(
            self._handle,
            library.GraphProperties(is_symmetric=False, is_multigraph=True),
            self._put(sources.to(self._ids)),
            self._put(torch.cat([events.dst, events.src]).to(self._ids)),
            weight_array=None,
            store_transposed=False,
            renumber=False,
            do_expensive_check=False,
            edge_id_array=self._put(torch.arange(2 * count, dtype=self._ids)),
            edge_start_time_array=self._put(times.repeat(2)),
            vertices_array=self._put(torch.arange(events.num_nodes, dtype=self._ids)),
            drop_self_loops=False,
            drop_multi_edges=False,
            symmetrize=False,
        )
        self._wait()

    def sample(
        self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str
    ) -> CuGraphSample:
        self._draw += 1
        nodes = nodes.to(self.device)
        ends = self._bounds(times).to(self.device)
        # Labels without any edge are counted in some releases and left out in others.
        roots = (self._first[nodes] < ends).nonzero().flatten()
        if not roots.numel():
            return CuGraphSample(roots, 1, roots, roots.new_zeros(1))
        self._wait()
        found = self._library.neighbor_sample(
            self._handle,
            self._graph,
            self._put(nodes[roots].to(self._ids)),
            np.asarray(fanouts, dtype=np.int32),
            starting_vertex_label_offsets=self._put(torch.arange(roots.numel() + 1)),
            with_replacement=False,
            do_expensive_check=False,
            disjoint_sampling=True,
            return_hops=True,
            random_state=self._draw,
            neighbor_selection="last" if policy == "recent" else "random",
            **self._window(ends[roots]),
        )
        edges, offsets = (self._get(found, key) for key in ("edge_id", "label_hop_offsets"))
        self._wait()
        wanted = roots.numel() * len(fanouts) + 1
        if offsets.numel() != wanted:
            raise CheckFailed(f"{self.package} returned {offsets.numel()} offsets, not {wanted}")
        return CuGraphSample(roots, len(fanouts), edges % self._count, offsets)

    def _window(self, ends: Tensor) -> dict[str, Any]:
        """Arguments that say which edges a hop may take; `ends` int64[Q] are not among them."""
        return {
            "starting_vertex_end_times": self._put(ends),
            "temporal_sampling_comparison": "strictly_decreasing",
        }

    def first_hop(self, answer: CuGraphSample) -> tuple[Tensor, Tensor]:
        begins, ends = answer.offsets[: -1 : answer.hops], answer.offsets[1 :: answer.hops]
        count = ends - begins
        root = torch.repeat_interleave(answer.roots, count)
        within = torch.arange(root.numel(), device=root.device)
        within -= torch.repeat_interleave(count.cumsum(0) - count, count)
        at = torch.repeat_interleave(begins, count) + within
        return root.cpu(), answer.edges[at].cpu()

    def _bounds(self, times: Tensor) -> Tensor:
        """int64[R]: an edge is before `times` float64[R] just if its own time is below this."""
        if self._ranks is not None:
            return torch.searchsorted(self._ranks, times)
        return times.ceil().long()

    def _put(self, array: Tensor) -> Any:
        import cupy

        return cupy.from_dlpack(array.to(self.device).contiguous())

    def _get(self, found: dict[str, Any], key: str) -> Tensor:
        if found.get(key) is None:
            raise CheckFailed(f"{self.package} returned no '{key}'")
        return torch.from_dlpack(found[key]).long()

    def _wait(self) -> None:
        """Wait for the device: cuGraph works on a stream of its own."""
        if self.device == "cuda":
            torch.cuda.synchronize()


class CuGraphWindow(CuGraph):
    """pylibcugraph's sampler with a fixed window: every hop looks before its root's own time."""

    name = "cugraph-window"
    title = "cuGraph, fixed window"
    note = "samples on the GPU; later hops look before the root's time, not before their edge's"

    _flag = True
    """True if the window is an argument of its own, as in newer releases of 26.10."""

    def sample(
        self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str
    ) -> CuGraphSample:
        if self._flag:
            try:
                return super().sample(nodes, times, fanouts, policy)
            except TypeError:  # an argument that it does not know
                self._flag = False
        return super().sample(nodes, times, fanouts, policy)

    def _window(self, ends: Tensor) -> dict[str, Any]:
        # Both bounds belong to a window: times are whole, so one less is strictly before.
        bounds = {
            "starting_vertex_start_times": self._put(torch.full_like(ends, self._begin)),
            "starting_vertex_end_times": self._put(ends - 1),
        }
        if self._flag:
            rule = "monotonically_increasing"
            return bounds | {"temporal_sampling_comparison": rule, "fixed_window": True}
        return bounds | {"temporal_sampling_comparison": "fixed_window"}
