"""One rank's trainer: the same steps as the plain timeline, dealt out over a group of ranks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.aggregate import spmm
from dgbench.models import Aggregator, sample_pairs
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.systems.base.timeline import TimelineTrainer, TimelineWorkload
from dgbench.systems.esdg.partition import accumulate, block_ranges, sum_gradients
from dgbench.systems.esdg.partition_snapshots import SnapshotSplit
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import VertexParts, split_vertices

Partition = Literal["snapshot", "vertex"]
PARTITIONS: tuple[Partition, ...] = ("snapshot", "vertex")

TEST_SEED = 7919
"""What is added to a workload's seed to draw the pairs that predictions are tested on."""


class LocalSnapshots:
    """A-hat over the snapshots of this process by the compiled product.

    Only snapshots that are asked for are touched. With `precompute` A-hat_t X_t is made at its
    first use and kept (ESDG, section 3.3).
    """

    def __init__(
        self, data: SnapshotSequence, norm: str, dtype: torch.dtype, *, precompute: bool = True
    ) -> None:
        self._data, self._norm, self._dtype, self._precompute = data, norm, dtype, precompute
        self._first: dict[int, Tensor] = {}
        self._scales: dict[int, tuple[Tensor, Tensor]] = {}

    def raw(self, t: int) -> Tensor:
        return torch.as_tensor(self._data.features[t]).to(self._dtype)

    def first(self, t: int) -> Tensor:
        if t in self._first:
            return self._first[t]
        with torch.no_grad():
            found = self.apply(t, self.raw(t))
        if self._precompute:
            self._first[t] = found
        return found

    def apply(self, t: int, h: Tensor) -> Tensor:
        csr = self._data.topology[t]
        if t not in self._scales:
            rows, cols = factors(csr, self._norm)
            self._scales[t] = (rows.to(self._dtype), cols.to(self._dtype))
        return spmm(csr, h, *self._scales[t], self_loop=True)


class RankTrainer(TimelineTrainer):
    """Trains on a share of the timeline; every method is called by all ranks alike.

    Parameters are replicated and stay equal, for all ranks step with the same summed gradient.
    Losses, gradients and outputs that it returns are those of the whole timeline.

    Attributes:
        comm: this rank's end of the group; its traffic is what was sent.
        partition: `snapshot` (sections 4.1 to 4.3) or `vertex` (the baseline of 4.4).
        blocks: the timeline in blocks.
        checkpoint: whether blocks are run again in the backward pass.
        split: how a block is computed.
    """

    def __init__(
        self,
        comm: Communicator,
        workload: TimelineWorkload,
        data: SnapshotSequence,
        *,
        partition: Partition = "snapshot",
        blocks: int = 1,
        checkpoint: bool = True,
        pieces: int = 1,
        precompute: bool = True,
        dtype: torch.dtype = torch.float32,
        parts: VertexParts | None = None,
        aggregator: Aggregator | None = None,
    ) -> None:
        """Lay the data out for this rank.

        Args:
            comm: of a CPU.
            workload, data: as of `PlainTimeline`; equal on all ranks.
            partition: `snapshot` or `vertex`.
            blocks: 1 .. steps of the timeline.
            checkpoint: see `accumulate`.
            pieces: overlap of exchanges and convolutions, see `SnapshotSplit` and `VertexSplit`;
                1 is off.
            precompute: keep A-hat_t X_t.
            dtype: float32 or float64.
            parts: of the vertices, for `vertex`; None: `split_vertices`, which is deterministic and
                so the same on all ranks.
            aggregator: for `snapshot`; None: `LocalSnapshots`.

        Raises:
            UnknownKeyError, InvalidInputError: an argument out of range.
            UnsupportedError: ranks that do not compute on a CPU.
        """
        if comm.device.type != "cpu":
            raise UnsupportedError(f"ranks on '{comm.device}' are not built, only on a CPU")
        super().__init__(workload, data, device="cpu", meter=comm.meter, dtype=dtype)
        if partition not in PARTITIONS:
            raise unknown_key("partition", partition, PARTITIONS)
        self.comm, self.partition, self.checkpoint = comm, partition, checkpoint
        self.blocks = block_ranges(self.task.steps, blocks)
        self.split: SnapshotSplit | VertexSplit
        if partition == "snapshot":
            if parts is not None:
                raise InvalidInputError("'parts' is for the partition 'vertex' only")
            self.split = SnapshotSplit(
                comm,
                self.model,
                aggregator or LocalSnapshots(data, workload.norm, dtype, precompute=precompute),
                data.num_nodes,
                pieces=pieces,
            )
        else:
            if aggregator is not None:
                raise InvalidInputError("'aggregator' is for the partition 'snapshot' only")
            steps = range(self.task.steps)
            parts = parts or split_vertices([data.topology[t] for t in steps], comm.size)
            self.notes.append(f"vertices parted by {parts.method}")
            self.split = VertexSplit(
                comm,
                self.model,
                data,
                steps,
                parts,
                norm=workload.norm,
                dtype=dtype,
                task=self.task,
                pieces=pieces,
                precompute=precompute,
            )

    def accumulate(self) -> float:
        with self.meter.phase("compute"):
            loss = accumulate(self.split, self.blocks, self._loss, checkpoint=self.checkpoint)
            sum_gradients(self.comm, list(self.model.parameters()))
            return float(self.comm.all_reduce(torch.tensor([loss], dtype=torch.float64))[0])

    @torch.no_grad()
    def outputs(self) -> list[Tensor]:
        """[N, D] of all steps, gathered on every rank; the exchanges count as `forward`."""
        found: list[Tensor] = []
        state = None
        for times in self.blocks:
            out, state = self.split.run(times, state)
            found += self._gather(times, out)
        return found

    @torch.no_grad()
    def output(self, step: int) -> Tensor:
        """[N, D] of one step, on every rank."""
        state = None
        for times in self.blocks:
            out, state = self.split.run(times, state)
            if step in times:
                return self._gather(times, out)[step - times.start]
        raise InvalidInputError(f"'step' is {step}, allowed: 0 to {self.task.steps - 1}")

    def evaluate(self, frame: int = 0) -> Tensor:
        self._check(frame)
        return self.output(self.task.steps - 1).detach().cpu()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Share of right predictions on the last step that has any to make; link and class.

        Of `link` they are made for pairs that the loss does not score: edges of the snapshot that
        were not drawn as positives, and other random pairs. Which pairs the paper tests on is not
        said. With `theta` 1 no edge is left, and the trained pairs are scored.
        """
        step, pairs, label = self._test()
        if step < 0:
            return 0.0
        scores = (
            self.model.head(self.output(step), pairs)
            if pairs is not None
            else self.model.head(self.output(step))
        )
        return int((scores.argmax(-1) == label).sum()) / label.numel()

    def _test(self) -> tuple[int, Tensor | None, Tensor]:
        """Step, its pairs (None for classes) and labels; step -1 where there is nothing to test."""
        if self.workload.task == "node":
            raise InvalidInputError("task is 'node', which has no classes to be right about")
        last = self.task.steps - 1
        if self.workload.task == "class":
            return last, None, self.task.target(last)
        for step in range(last, -1, -1):
            pairs, label = self.task.pairs(step)
            if label.numel():
                return step, *self._fresh(step, pairs, label)
        return -1, None, torch.zeros(0)

    def _fresh(self, step: int, pairs: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        csr, nodes = self.data.topology[step + 1], self.data.num_nodes
        known = pairs[1, label == 1] * nodes + pairs[0, label == 1]
        seed = self.workload.seed + TEST_SEED
        drawn, truth = sample_pairs(csr, self.workload.theta, seed=seed, step=step + 1)
        drawn, truth = drawn.to(pairs.device), truth.to(pairs.device)
        fresh = (truth == 0) | ~torch.isin(drawn[1] * nodes + drawn[0], known)
        kept = int(fresh[truth == 1].sum())
        if not kept:
            return pairs, label
        # As many random pairs as edges, so that guessing is right in half of the cases.
        fresh[truth.numel() // 2 + kept :] = False
        return drawn[:, fresh], truth[fresh]

    def _loss(self, times: range, out: Tensor) -> Tensor:
        return self._loss_sum(times, out) / self.task.count

    def _loss_sum(self, times: range, out: Tensor) -> Tensor:
        if isinstance(self.split, VertexSplit):
            return self.split.loss_sum(times, out)
        held = self.split.held(times)
        losses = [self.task.loss_sum(self.model.head, t, h) for t, h in zip(held, out, strict=True)]
        return torch.stack(losses).sum() if losses else out.new_zeros(())

    def _gather(self, times: range, out: Tensor) -> list[Tensor]:
        if isinstance(self.split, SnapshotSplit):
            shares = self.split.shares(times).steps
            rows = [sum(len(piece) for piece in pieces) for pieces in shares]
            return list(self.comm.all_gather(out, rows).unbind(0))
        parts = self.split.parts
        whole = self.comm.all_gather(out.transpose(0, 1).contiguous(), parts.sizes)
        restored = torch.empty_like(whole)
        restored[parts.order] = whole
        return list(restored.transpose(0, 1).contiguous().unbind(0))
