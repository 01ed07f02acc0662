"""TGL's way of training on a growing graph, as the baseline of streaming systems."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import System, Workload
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.base.stream_data import StreamData
from dgbench.systems.tgl.access import FeatureRowCache, RebuiltAccess


class TglSystem(System):
    """Sorted rows rebuilt from all edges every round, sampled on the CPU, no cache."""

    name = "tgl"
    title = "TGL"
    kind = "baseline"
    about = (
        "A time-sorted CSR, rebuilt from all edges whenever some are new, sampled by threads "
        "on the CPU; features come from tables in host memory."
    )
    provenance = "re-implemented (TGL, VLDB 2022) with exact times and draws that differ by call"

    trains = (StreamWorkload, "trains on streams of events, not on snapshots")

    def open(
        self,
        workload: Workload | StreamWorkload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
        data: StreamData | None = None,
        dtype: torch.dtype = torch.float32,
        threads: int | None = None,
        node_cache: FeatureRowCache | None = None,
        edge_cache: FeatureRowCache | None = None,
    ) -> StreamTrainer:
        """A trainer that has taken in nothing yet.

        Args:
            workload: what is trained.
            device: of the model; the graph and the features stay in host memory, the features
                page-locked where it is a CUDA device.
            switches: it has none.
            meter: as for every trainer.
            data: of the workload, where it is open already.
            dtype: of the model.
            threads: of builder and sampler.
            node_cache, edge_cache: "TGL with cache": asked for features instead of the tables.

        Raises:
            UnsupportedError: what cannot run, with the reasons.
            UnknownKeyError: any switch.
        """
        self.switches(switches)
        if reasons := self.unsupported(workload, device):
            raise UnsupportedError(f"{self.name}: {'; '.join(reasons)}")
        data = load_stream(workload) if data is None else data
        meter = meter if meter is not None else Meter(device=device)
        access = RebuiltAccess(
            workload,
            data,
            meter=meter,
            threads=threads,
            device=device,
            node_cache=node_cache,
            edge_cache=edge_cache,
        )
        return StreamTrainer(workload, data, access, device=device, meter=meter, dtype=dtype)
