"""One rank's trainer: the same steps as the plain timeline, dealt out over a group of ranks."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.models import Aggregator, sample_pairs
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.timeline import TimelineTrainer, TimelineWorkload
from dgbench.systems.esdg.partition import accumulate, block_ranges, consecutive, sum_gradients
from dgbench.systems.esdg.partition_local import LocalSnapshots
from dgbench.systems.esdg.partition_snapshots import SnapshotSplit
from dgbench.systems.esdg.transfer import Delivery, TransferFormat, slots_for
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import VertexParts, split_vertices

if TYPE_CHECKING:
    from dgbench.systems.esdg.hybrid import HybridSplit

Partition = Literal["snapshot", "vertex", "hybrid"]
PARTITIONS: Final[tuple[Partition, ...]] = ("snapshot", "vertex", "hybrid")

BLOCKS: Final = 2
"""Blocks of a timeline under the gradient checkpoint where their number is not said."""

TEST_SEED: Final = 7919
"""Offset of a workload's seed for the pairs that predictions are tested on."""


def published(steps: int) -> dict[str, Any]:
    """Arguments of `SnapshotRankTrainer` for ESDG as published, over a timeline of so many steps.

    Checkpoints between blocks, snapshots brought as differences, the first product made once, and
    torch's LSTM; what dgbench adds is off.
    """
    return {"blocks": min(BLOCKS, steps), "difference": True}


class SnapshotRankTrainer(TimelineTrainer):
    """Trains on a share of the timeline; every method is called by all ranks alike.

    Parameters are replicated and stay equal, for all ranks step with the same summed gradient.
    Losses, gradients and outputs that it returns are those of the whole timeline.

    Attributes:
        comm: this rank's end of the group; its traffic is what was sent.
        partition: `snapshot` (section 4.2), `vertex` (the baseline of 4.1) or `hybrid` (6.5).
        blocks: the timeline in blocks.
        checkpoint: whether blocks are run again in the backward pass.
        lean: whether the first pass of a checkpoint does only what borders need.
        split: how a block is computed.
        delivery: what brings this rank's snapshots over a link; None where they lie.
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
        fused: bool = False,
        reuse: bool = False,
        late: bool = False,
        scored: bool = False,
        lean: bool | None = False,
        group: int = 1,
        difference: bool | None = None,
        prefetch: bool = False,
        dtype: torch.dtype = torch.float32,
        parts: VertexParts | None = None,
        aggregator: Aggregator | None = None,
    ) -> None:
        """Lay the data out for this rank.

        Args:
            comm: of a CPU or of a CUDA device.
            workload, data: as of `PlainTimeline`; equal on all ranks.
            partition: `snapshot`, `vertex` or `hybrid`.
            blocks: 1 .. steps of the timeline.
            checkpoint: see `accumulate`.
            pieces: overlap of exchanges and convolutions, see the splits; 1 is off.
            precompute: keep A-hat_t X_t.
            fused: run recurrences as compiled scans. Added: the paper uses torch's LSTM.
            reuse: for `snapshot` with `checkpoint`: keep what the first pass receives.
            late: for `snapshot`: make dense halves behind the exchange, see `SnapshotSplit`.
            scored: for `snapshot` with `checkpoint`: bring home only what the loss reads.
            lean: see `accumulate`. None: where that leaves out neither exchange nor transfer, so
                that volumes are the paper's: the snapshot partition of a model without a temporal
                half, whose snapshots lie where they are used.
            group: for `hybrid`: ranks that share a snapshot.
            difference: for `snapshot`: bring the rank's snapshots block by block over a link, into
                memory apart on a CPU; as differences (True) or plain (False). None: they are used
                where they lie, on a CUDA device after one copy.
            prefetch: with `difference` and `checkpoint`: copy the next block's share while one
                computes. Added: the paper copies a block, then computes it.
            dtype: float32 or float64.
            parts: of the vertices, for `vertex`; None: `split_vertices`, which is deterministic and
                so the same on all ranks.
            aggregator: for `snapshot`; None: `LocalSnapshots`.

        Raises:
            UnknownKeyError, InvalidInputError: an argument out of range, or two that exclude
                each other.
            UnsupportedError: a device of another kind.
        """
        if partition not in PARTITIONS:
            raise unknown_key("partition", partition, PARTITIONS)
        if comm.device.type not in ("cpu", "cuda"):
            raise UnsupportedError(
                f"ranks do not train on '{comm.device}'", hint="device='cpu' or 'cuda'"
            )
        _exclude(partition, checkpoint, reuse, late, scored, group, difference, parts, aggregator)
        check_prefetch(prefetch, checkpoint, difference)
        super().__init__(workload, data, device=str(comm.device), meter=comm.meter, dtype=dtype)
        self.comm, self.partition, self.checkpoint = comm, partition, checkpoint
        self.blocks = block_ranges(self.task.steps, blocks)
        if lean is None:
            moved = any(map(self.model.has_temporal, range(self.model.num_layers)))
            lean = partition == "snapshot" and not moved and difference is None
        self.lean = lean
        self.delivery: Delivery | None = None
        common: dict[str, Any] = {"pieces": pieces, "fused": fused}
        laid: dict[str, Any] = {
            "norm": workload.norm,
            "dtype": dtype,
            "task": self.task,
            "precompute": precompute,
        }
        self.split: SnapshotSplit | VertexSplit | HybridSplit
        if partition == "snapshot":
            if difference is not None:
                aggregator = self.delivery = self._deliver(difference, precompute, prefetch)
            self.split = SnapshotSplit(
                comm,
                self.model,
                aggregator
                or LocalSnapshots(
                    data, workload.norm, dtype, device=comm.device, precompute=precompute
                ),
                data.num_nodes,
                task=self.task,
                reuse=reuse,
                late=late,
                scored=scored,
                **common,
            )
            self._stage()
        elif partition == "vertex":
            steps = range(self.task.steps)
            parts = parts or split_vertices([data.topology[t] for t in steps], comm.size)
            self.notes.append(f"vertices parted by {parts.method}")
            self.split = VertexSplit(comm, self.model, data, steps, parts, **laid, **common)
            self.split.prepare(self.blocks)
        else:
            from dgbench.systems.esdg.hybrid import HybridSplit

            self.split = HybridSplit(
                comm, self.model, data, data.num_nodes, group=group, **laid, **common
            )
            self.split.prepare(self.blocks)

    def accumulate(self) -> float:
        with self.meter.phase("compute"):
            loss = accumulate(
                self.split, self.blocks, self._loss, checkpoint=self.checkpoint, lean=self.lean
            )
            sum_gradients(self.comm, list(self.model.parameters()))
            whole = torch.tensor([loss], dtype=torch.float64, device=self.device)
            return float(self.comm.all_reduce(whole)[0])

    @torch.no_grad()
    def outputs(self) -> list[Tensor]:
        """[N, D] of all steps, gathered on every rank; the exchanges count as `forward`."""
        found: list[Tensor] = []
        state = None
        for times in self.blocks:
            with self.split.load(times, recorded=False):
                out, state = self.split.run(times, state)
                found += self._gather(times, out)
        return found

    @torch.no_grad()
    def output(self, step: int) -> Tensor:
        """[N, D] of one step, on every rank.

        Raises:
            InvalidInputError: a step that the model does not run over.
        """
        state = None
        for times in self.blocks:
            with self.split.load(times, recorded=False):
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
        step, test, label = self.test_pairs
        if step < 0:
            return 0.0
        scores = self.model.head(self.output(step), *test)
        return int((scores.argmax(-1) == label).sum()) / label.numel()

    def close(self) -> None:
        super().close()
        if self.delivery is not None:
            self.delivery.close()

    def _deliver(self, difference: bool, precompute: bool, prefetch: bool) -> Delivery:
        """Open the delivery of this rank's share of every block."""
        own = self._own_steps()
        # Without checkpoints all blocks stay until the backward pass, so each needs its slots.
        longest = max(1, max(map(len, own)) if self.checkpoint else sum(map(len, own)))
        ahead = prefetch and sum(map(bool, own)) > 1
        opened = partial(
            open_link,
            self.device,
            self.meter,
            asynchronous=True,
            arena=self.device.type == "cpu",
        )
        link = opened(slots=2 * longest if ahead else slots_for(longest))
        times = [t for steps in own for t in steps]
        form = TransferFormat(difference=difference, precompute=precompute)
        return Delivery(
            self.data,
            times,
            form,
            self.workload.norm,
            link,
            self.meter,
            dtype=self.dtype,
            apart=opened(slots=1) if ahead else None,
        )

    def _stage(self) -> None:
        if self.delivery is not None:
            self.delivery.prepare([steps for steps in self._own_steps() if steps])

    def _own_steps(self) -> list[range]:
        """This rank's steps of every block under the snapshot partition."""
        return [consecutive(times, self.comm.size)[self.comm.rank] for times in self.blocks]

    @cached_property
    def test_pairs(self) -> tuple[int, tuple[Tensor, ...], Tensor]:
        """Step, what its head reads besides, and labels; step -1 where there is nothing to test."""
        if self.workload.task == "node":
            raise InvalidInputError("task is 'node', which has no classes to be right about")
        last = self.task.steps - 1
        if self.workload.task == "class":
            return last, (), self.task.target(last)
        for step in range(last, -1, -1):
            pairs, label = self.task.pairs(step)
            if label.numel():
                pairs, label = self._fresh(step, pairs, label)
                return step, (pairs,), label
        return -1, (), torch.zeros(0)

    def _fresh(self, step: int, pairs: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs of a step that the loss does not score, as many edges as others."""
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
        return self.split.loss_sum(times, out) / self.task.count

    def _gather(self, times: range, out: Tensor) -> list[Tensor]:
        if not isinstance(self.split, VertexSplit):
            return self.split.gather(times, out)
        parts = self.split.parts
        whole = self.comm.all_gather(out.transpose(0, 1).contiguous(), parts.sizes)
        restored = torch.empty_like(whole)
        restored[parts.order.to(whole.device)] = whole
        return list(restored.transpose(0, 1).contiguous().unbind(0))


def check_prefetch(prefetch: bool, checkpoint: bool, difference: bool | None) -> None:
    """Raise InvalidInputError where there is no next block to copy."""
    if prefetch and (difference is None or not checkpoint):
        raise InvalidInputError(
            f"'prefetch' is True, 'difference' {difference} and 'checkpoint' {checkpoint}; "
            "needed are snapshots that are brought and blocks that are given back"
        )


def _exclude(
    partition: str,
    checkpoint: bool,
    reuse: bool,
    late: bool,
    scored: bool,
    group: int,
    difference: bool | None,
    parts: VertexParts | None,
    aggregator: Aggregator | None,
) -> None:
    """Raise InvalidInputError where an argument is for another partition."""
    given = {
        "parts": ("vertex", parts is not None),
        "aggregator": ("snapshot", aggregator is not None),
        "reuse": ("snapshot", reuse),
        "late": ("snapshot", late),
        "scored": ("snapshot", scored),
        "difference": ("snapshot", difference is not None),
        "group": ("hybrid", group != 1),
    }
    for name, (wanted, there) in given.items():
        if there and partition != wanted:
            raise InvalidInputError(
                f"'{name}' is for the partition '{wanted}', not for '{partition}'"
            )
    for name, there in (("reuse", reuse), ("scored", scored)):
        if there and not checkpoint:
            raise InvalidInputError(f"'{name}' needs 'checkpoint': without it nothing is run again")
    if aggregator is not None and difference is not None:
        raise InvalidInputError("'aggregator' and 'difference' both say where snapshots come from")
