"""Settings of a run: the paper's systems and switches as values (DGC, section 7.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dgbench.runtime.collectives import LinkEmulation
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.base.transport import Transport, check_transport
from dgbench.systems.dgc.partition import PAPER, ChunkSettings
from dgbench.systems.dgc.placement import Partition
from dgbench.systems.dgc.stale import StaleSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTITIONS: Final[tuple[Partition, ...]] = (
    "snapshots",
    "snapshots-contiguous",
    "sequences",
    "both",
    "chunks",
)
Temporal = Literal["packed", "padded", "packed_sequence"]
TEMPORAL: Final[tuple[Temporal, ...]] = ("packed", "padded", "packed_sequence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRankSettings:
    """Settings of training on several workers; all but `stale` train the same model.

    Attributes:
        partition: `snapshots-contiguous` (PSS in runs, as ESDG), `snapshots` (PSS in turn),
            `sequences` (PTS), `both` (PSS-TS) or `chunks` (PGC).
        chunks: how chunks are made and dealt out, for `chunks`; by default as published.
        spatial_fusion: the structure encoder takes fused chunks instead of one chunk or snapshot
            after the other (section 5.1.1).
        temporal: sequences lie `packed` in rows (section 5.1.2), `padded` to the longest of their
            unit, or as torch's `packed_sequence`, which the paper does not compare with.
        stale: hold back rows that hardly changed (section 5.2); None: send all.
        store: rows go through one server, a rank of its own, which with `stale` keeps the rows
            that were sent last (section 6).
        precompute: fetch the input rows of other workers once and keep the first product. The paper
            counts two exchanges (section 3.2).
        memory_limit_bytes: of a fused chunk. The first epoch then goes chunk by chunk and measures
            each (section 5.1.1); None: no limit, all is fused from the beginning.
        wire: an emulated link, (seconds per message, bytes per second); None: the real one.
        transport: what carries rows: `auto`, shared memory on one machine, `gloo`, its sockets,
            or `backend`, these or NCCL.
    """

    partition: Partition = "chunks"
    chunks: ChunkSettings = PAPER
    spatial_fusion: bool = True
    temporal: Temporal = "packed"
    stale: StaleSettings | None = None
    store: bool = False
    precompute: bool = False
    memory_limit_bytes: int | None = None
    wire: tuple[float, float] | None = None
    transport: Transport = "auto"

    def check(self) -> ChunkRankSettings:
        """Return self.

        Raises:
            UnknownKeyError, InvalidInputError: a field out of range, or two that exclude another.
        """
        if self.partition not in PARTITIONS:
            raise unknown_key("partition", self.partition, PARTITIONS)
        if self.temporal not in TEMPORAL:
            raise unknown_key("temporal", self.temporal, TEMPORAL)
        check_transport(self.transport)
        if self.stale is not None:
            self.stale.check()
            if self.store and self.stale.index != "bits":
                raise InvalidInputError(
                    f"'stale.index' is {self.stale.index!r}, allowed with a 'store' is 'bits'"
                )
        if self.memory_limit_bytes is not None and self.memory_limit_bytes < 1:
            raise InvalidInputError(
                f"'memory_limit_bytes' is {self.memory_limit_bytes!r}; more than 0 is needed"
            )
        if self.wire is not None:
            LinkEmulation(*self.wire)
        return self


_PLAIN: Final = {"spatial_fusion": False, "temporal": "padded"}

BASELINES: Final[Mapping[str, ChunkRankSettings]] = {
    "PyGT-PSS": ChunkRankSettings(partition="snapshots", **_PLAIN),
    "PyGT-PSS contiguous": ChunkRankSettings(partition="snapshots-contiguous", **_PLAIN),
    "PyGT-PTS": ChunkRankSettings(partition="sequences", **_PLAIN),
    "PyGT-PSS-TS": ChunkRankSettings(partition="both", **_PLAIN),
}
"""The paper's baselines: snapshot by snapshot, sequences padded to the longest of a worker. PSS
deals snapshots out in turn or in runs; the faster one on a workload is the baseline there."""

LADDER: Final[Mapping[str, ChunkRankSettings]] = {
    "DGC w/o CF&SG": ChunkRankSettings(**_PLAIN),
    "DGC w/o SG": ChunkRankSettings(),
    "DGC": ChunkRankSettings(stale=StaleSettings()),
}
"""DGC as published, step by step: the partition alone, with chunk fusion, with stale rows."""

REFINED: Final = ChunkRankSettings(chunks=ChunkSettings(), stale=StaleSettings())
"""DGC with our refinement of its partition on top of all that the paper has."""
