"""Released contenders. Each is imported only when it is asked for; where it is absent, a reason."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dgbench.systems.gnnflow.contenders.base import ContenderEvents, GraphStoreContender


class Released(GraphStoreContender):
    """A package from an index.

    Class attributes:
        package, module: its name in the index and in Python.
        install: the command that helps where it is absent.
    """

    package: ClassVar[str]
    module: ClassVar[str]
    install: ClassVar[str]

    @classmethod
    def load(cls) -> ModuleType:
        """The module; raises whatever its import raises."""
        os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes one into the home folder
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(cls.module)

    @classmethod
    def absent(cls) -> str:
        if importlib.util.find_spec(cls.module) is None:
            return f"{cls.package} is not installed; {cls.install}"
        return ""

    @classmethod
    def unavailable(cls) -> str:
        try:
            cls.load()
        except Exception as error:  # a package of others may fail in any way
            said = str(error).splitlines()[0] if str(error) else ""
            return f"{cls.package}: {type(error).__name__}: {said}; {cls.install}"
        return ""

    @classmethod
    def origin(cls) -> str:
        return f"released {cls.package} {importlib.metadata.version(cls.package)}"


class Dgl(Released):
    """DGL's sampler, which knows no time, on a graph that is made anew.

    DGL is no longer maintained; its row stays as a historical one.
    """

    name = "dgl"
    title = "DGL"
    package, module, install = "dgl", "dgl", "pip install dgl==1.1.3"
    note = "historical, no longer maintained; not temporal: draws from all edges, for a vertex once"
    temporal = False
    policies = ("uniform",)

    def build(self, events: ContenderEvents) -> None:
        dgl = self.load()
        self._edges = len(events)
        both = torch.cat([events.src, events.dst]), torch.cat([events.dst, events.src])
        # The one format that sampling reads; else the first sample would pay for it.
        self.graph = dgl.graph(both, num_nodes=events.num_nodes).formats(["csc"])

    def add(self, events: ContenderEvents, old: int) -> None:
        self.build(events)

    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        sampling = self.load().sampling
        seeds, first = torch.unique(nodes), None
        for fanout in fanouts:
            block = sampling.sample_neighbors(self.graph, seeds, fanout)
            first = block if first is None else first
            seeds = torch.unique(torch.cat([seeds, block.edges()[0]]))
        return nodes, first

    def first_hop(self, answer: Any) -> tuple[Tensor, Tensor]:
        nodes, block = answer
        return spread(nodes, block.edges()[1], block.edata[self.load().EID] % self._edges)


class LastNeighbours(Released):
    """torch-geometric's ring of the last neighbours of each vertex."""

    name = "pyg-last"
    title = "PyG LastNeighborLoader"
    package, module, install = "torch-geometric", "torch_geometric", "pip install torch-geometric"
    note = "answers for the moment after its last insertion, whatever a root's time is"
    in_place = True
    temporal = looks_back = False
    policies = ("recent",)
    hops = 1
    size: ClassVar[int] = 10

    def build(self, events: ContenderEvents) -> None:
        models = importlib.import_module("torch_geometric.nn.models.tgn")
        self.loader = models.LastNeighborLoader(events.num_nodes, size=self.size)
        for at in range(0, len(events), 100_000):
            part = slice(at, at + 100_000)
            self.loader.insert(events.src[part], events.dst[part])

    def add(self, events: ContenderEvents, old: int) -> None:
        self.loader.insert(events.src[old:], events.dst[old:])

    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        asked = torch.unique(nodes)
        return nodes, self.loader(asked)

    def first_hop(self, answer: Any) -> tuple[Tensor, Tensor]:
        nodes, (known, edges, eid) = answer
        return spread(nodes, known[edges[1]], eid)


class Tglite(Released):
    """TGLite's sampler over rows that are built anew."""

    name = "tglite"
    title = "TGLite"
    package, module, install = "tglite", "tglite", "nox -s peers"
    note = "keeps times as float32, draws with replacement, the same numbers in every call"

    def __init__(self, *, threads: int = 1) -> None:
        super().__init__(threads=threads)
        self._samplers: dict[tuple[int, str], Any] = {}

    def build(self, events: ContenderEvents) -> None:
        edges = torch.stack([events.src, events.dst], 1).to(torch.int32).numpy()
        times = events.t.to(torch.float32).numpy()
        graph = self.load().TGraph(edges, times, num_nodes=events.num_nodes)
        graph._init_tcsr()  # else the first sample would pay for it
        # A block calls `graph()` of its context, which is a property in this release.
        self._context = SimpleNamespace(graph=lambda: graph)

    def add(self, events: ContenderEvents, old: int) -> None:
        self.build(events)

    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        block_of = self.load().TBlock
        first = block = block_of(
            self._context, 0, nodes.to(torch.int32).numpy(), times.to(torch.float32).numpy()
        )
        for hop, fanout in enumerate(fanouts):
            if hop:
                block = block.next_block(include_dst=True)
            self._sampler(fanout, policy).sample(block)
        return first

    def _sampler(self, fanout: int, policy: str) -> Any:
        key = fanout, policy
        if key not in self._samplers:
            self._samplers[key] = self.load().TSampler(fanout, policy, self.threads)
        return self._samplers[key]

    def first_hop(self, answer: Any) -> tuple[Tensor, Tensor]:
        root, eid = (np.asarray(of).astype(np.int64) for of in (answer.dstindex, answer.eid))
        return torch.from_numpy(root), torch.from_numpy(eid)


def spread(nodes: Tensor, vertex: Tensor, eid: Tensor) -> tuple[Tensor, Tensor]:
    """Expand answers given once per vertex to all roots of that vertex.

    Args:
        nodes: int64[R], the roots.
        vertex, eid: int64[K]: whom an edge was returned for, and which edge.

    Returns:
        (root, eid) as `GraphStoreContender.first_hop`.
    """
    order = torch.argsort(vertex, stable=True)
    sorted_ = vertex[order].contiguous()
    begins = torch.searchsorted(sorted_, nodes)
    count = torch.searchsorted(sorted_, nodes, right=True) - begins
    root = torch.repeat_interleave(torch.arange(nodes.numel()), count)
    within = torch.arange(root.numel()) - (count.cumsum(0) - count)[root]
    return root, eid[order][begins[root] + within]
