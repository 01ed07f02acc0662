"""One worker's share of a forward pass: structure rounds, moves, and the time encoder (section 4).

Rows of the worker lie in tables; what is computed at once is a part of a table. Autograd runs the
same parts and exchanges backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.models.sequence import SequenceModel, Starts
from dgbench.runtime.collectives import Communicator
from dgbench.systems.dgc.exchange import RowExchange
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.neighbours import MatrixNeighbours
from dgbench.systems.dgc.packed_sequence import FallingRows, run_packed_sequence
from dgbench.systems.dgc.rows import arrange, split_rows, take_rows, tie, turn
from dgbench.systems.dgc.unit_bytes import UnitBytes

if TYPE_CHECKING:
    from dgbench.systems.dgc.plan import WorkerPlan
    from dgbench.systems.dgc.segments import SegmentStage, Temporal, TimeGroup

LOAD, STRUCTURE, TIME, SEND = "transfer", "gnn", "rnn", "communicate"
"""Phases: loading rows of a part, the structure encoder, the time encoder, exchanges."""


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """`models.sequence.SequenceRows` where the model is.

    Attributes:
        own: bool[T, N], the steps whose outputs are kept here; None: all.
    """

    begins: Tensor
    sequence: Tensor
    position: Tensor
    own: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _StructureEncoderGroup:
    """A group of the structure encoder on the device.

    Attributes:
        rows: of its own, which lie behind those of the group before it.
        others: further rows that it loads.
        neighbours: over both.
    """

    rows: int
    others: int
    neighbours: MatrixNeighbours


@dataclass(frozen=True, slots=True)
class _OtherRows:
    """Rows that groups of the structure encoder load beside their own, group after group.

    Attributes:
        index: int64, in the own rows of all groups and then those of other workers; where `back`
            is given, in those of other workers alone.
        back: int64[H], the place of each row of other workers, where each is loaded once and no
            other row is, as where groups are snapshots.
    """

    index: Tensor
    back: Tensor | None


@dataclass(frozen=True, slots=True)
class _TimeEncoderGroup:
    """A group of the time encoder on the device.

    Attributes:
        rows: what the model is told of the rows.
        ends: int64[n], places of last steps in the rows laid out as [T * N].
        falling: where the sequences are run as torch's PackedSequence.
    """

    rows: DeviceRows
    ends: Tensor
    falling: FallingRows | None

    @property
    def size(self) -> int:
        """T * N."""
        return self.rows.begins.numel()


@dataclass(frozen=True, slots=True)
class _DeviceStage:
    """Segments of one stage on the device.

    Attributes:
        name: of the exchange of its end states.
        runs: what is run at once.
        order: int64[n], sorts the end states of all runs by segment; None where they are in order.
        lists: of the exchange; None behind the last stage.
    """

    name: str
    runs: list[_TimeEncoderGroup]
    order: Tensor | None
    lists: RowLists | None


class Worker:
    """The forward pass of one worker.

    Attributes:
        plan: its share.
        place: int64[R2], where the output of each of its rows of the time encoder lies in what
            `forward` gives.
    """

    def __init__(
        self,
        comm: Communicator,
        model: SequenceModel,
        plan: WorkerPlan,
        features: Tensor,
        exchange: RowExchange,
        *,
        temporal: Temporal = "packed",
        precompute: bool = False,
        regroups: bool = False,
    ) -> None:
        """Bring to the device what every epoch reads.

        Rows of the structure encoder lie group after group, so that a group finds its own ones
        where they are and writes its output behind that of the group before it.

        Args:
            comm: of all workers.
            model: on the device.
            plan: of this worker.
            features: [R, F] of its rows of the structure encoder.
            exchange: how rows of other workers are had.
            temporal: what the plan's rows of sequences were made for.
            precompute: fetch input rows of others now, and keep their first product if it does not
                depend on parameters.
            regroups: `regroup` will be called, so rows lie as in the plan, whatever the groups.
        """
        self.comm, self.model, self.plan, self.exchange = comm, model, plan, exchange
        self.meter = comm.meter
        self._temporal = temporal
        self.device = next(model.parameters()).device
        self._dtype = next(model.parameters()).dtype
        groups = [] if regroups else plan.structure.groups
        order, self._place = _orders([g.rows for g in groups], plan.structure.rows.numel())
        self._x = features[order].to(self.device, self._dtype)
        self._fresh: list[Tensor] = []
        self._held: UnitBytes | None = None
        lists = plan.structure.lists
        self._lists = replace(lists, send=self._place[lists.send]).to(self.device)
        self._set_structure()
        self._set_time()
        self._inputs: Tensor | None = None
        if precompute:
            self.fetch_inputs()

    def forward(self) -> Tensor:
        """Outputs [M, D], of which `place` says where those of the worker's rows are.

        Every worker calls it alike; it depends on all exchanges of the pass.
        """
        self._fresh = []
        x = self._structure()
        out = self._attention(x) if self._attends else self._recurrence(x)
        out = tie(out, *self._fresh)
        self._fresh = []
        return out

    # The structure encoder.

    def _set_structure(self) -> None:
        plan, rows = self.plan.structure, self.plan.structure.rows.numel()
        width = rows + plan.halo.numel()
        groups = plan.groups
        whole = len(groups) <= 1 and all(g.columns.numel() == width for g in groups)
        self._whole: MatrixNeighbours | None = None
        self._parts: list[_StructureEncoderGroup] = []
        if whole:
            self._whole = self._neighbours(plan.csr, plan.loop)
            return
        for group in groups:
            made = self._neighbours(group.csr, group.loop)
            own = group.rows.numel()
            self._parts.append(_StructureEncoderGroup(own, group.columns.numel() - own, made))
        # Groups that are known later than the rows were laid out do not lie behind each other.
        order, place = _orders([g.rows for g in groups], rows)
        self._regrouped: tuple[Tensor, Tensor] | None = None
        if not torch.equal(place, self._place):
            index = self._place[order]
            back = torch.empty_like(index)
            back[index] = torch.arange(rows)
            self._regrouped = index.to(self.device), back.to(self.device)
        others = torch.cat([g.columns[g.rows.numel() :] for g in groups])
        self._others = _other_rows(others, place, plan.halo.numel(), self.device)

    def measure(self) -> UnitBytes | None:
        """Count from now on what each of the plan's groups holds in a pass with gradients.

        None where all rows are one group; there is nothing to tell apart.
        """
        if self._whole is None:
            self._held = UnitBytes(len(self._parts), self.model.parameters())
        return self._held

    def regroup(self, plan: WorkerPlan) -> None:
        """Go on with other groups of the structure encoder, of the same rows; count no more."""
        self.plan, self._held = plan, None
        self._set_structure()
        if self._inputs is not None:
            self._keep_first()

    def _neighbours(self, csr: Csr, loop: Tensor) -> MatrixNeighbours:
        values = None if csr.values is None else csr.values.to(self.device)
        moved = Csr(csr.indptr.to(self.device), csr.indices.to(self.device), csr.num_cols, values)
        return MatrixNeighbours(moved, loop.to(self.device))

    @torch.no_grad()
    def fetch_inputs(self) -> None:
        """Have the input rows of others from now on; all workers call it alike."""
        received = self.exchange.fetch("structure0", self._x, self._lists)
        self._inputs = torch.cat([self._x, received])
        self._keep_first()

    @torch.no_grad()
    def _keep_first(self) -> None:
        shown = self.model.show(0, self._inputs)
        if self._whole is not None and shown is self._inputs:
            self._whole.keep(shown)

    def _structure(self) -> Tensor:
        model, meter = self.model, self.meter
        x = self._x
        for k in range(len(model.round_dims)):
            with meter.phase(STRUCTURE):
                if k == 0 and self._inputs is not None:
                    table = model.show(0, self._inputs)
                    shown, received = table.split([x.shape[0], table.shape[0] - x.shape[0]])
                else:
                    shown = model.show(k, x)
                    received = self.exchange.fetch(f"structure{k}", shown, self._lists)
                    table = None
                if self._whole is not None:
                    table = self._joined(shown, received) if table is None else table
                    x = model.receive(k, self._whole, turn(table, meter, SEND))
                else:
                    x = self._by_parts(k, turn(shown, meter, STRUCTURE), received)
                x = turn(x, meter, STRUCTURE)
        return x

    def _by_parts(self, k: int, shown: Tensor, received: Tensor) -> Tensor:
        meter, counts = self.meter, [part.others for part in self._parts]
        with meter.phase(LOAD):
            if self._others is None:
                shown = tie(shown, received)
            if self._regrouped is not None:
                shown = arrange(shown, *self._regrouped)
            pieces = split_rows(shown, [part.rows for part in self._parts], meter, LOAD)
            if self._others is not None:
                others = self._loaded(shown, turn(received, meter, SEND), self._others)
                loaded = split_rows(others, counts, meter, LOAD)
                pieces = tuple(
                    torch.cat([own, more]) if more.shape[0] else own
                    for own, more in zip(pieces, loaded, strict=True)
                )
        made = [
            self._received(k, number, part, piece)
            for number, (part, piece) in enumerate(zip(self._parts, pieces, strict=True))
        ]
        with meter.phase(LOAD):
            x = torch.cat(made)
            if self._regrouped is None:
                return x
            index, back = self._regrouped
            return turn(arrange(turn(x, meter, STRUCTURE), back, index), meter, LOAD)

    def _loaded(self, shown: Tensor, received: Tensor, others: _OtherRows) -> Tensor:
        """Rows that groups load beside their own ones."""
        if others.back is not None:
            return arrange(received, others.index, others.back)
        return take_rows(torch.cat([shown, received]), others.index)

    def _received(self, k: int, number: int, part: _StructureEncoderGroup, piece: Tensor) -> Tensor:
        """Output of a group of the structure encoder for the rows that it has loaded."""
        if self._held is None or not torch.is_grad_enabled():
            return self.model.receive(k, part.neighbours, piece)
        matrix = part.neighbours.tensors if k == 0 else ()
        with self._held.of(number, piece, *matrix):
            return self.model.receive(k, part.neighbours, piece)

    def _joined(self, x: Tensor, received: Tensor) -> Tensor:
        """Own rows, below them what others sent."""
        if received.shape[0]:
            with self.meter.phase(LOAD):
                return torch.cat([x, received])
        return tie(x, received)

    # The time encoder.

    def _set_time(self) -> None:
        plan = self.plan.time
        self._attends = not self.model.state_dims
        source = self._place
        self._move: RowLists | None = None
        if plan.move is not None:
            lists = plan.move.lists
            self._move = replace(lists, send=source[lists.send]).to(self.device)
            self._keep = source[plan.move.keep].to(self.device)
            source = plan.move.order
        if self._attends:
            halo = source.numel() + torch.arange(plan.halo.numel())
            lists = plan.lists
            self._time_lists = replace(lists, send=source[lists.send]).to(self.device)
            source = torch.cat([source, halo])
            groups: Sequence[TimeGroup] = plan.groups
            self._runs = [self._run(group) for group in groups]
        else:
            groups = [group for stage in plan.stages for group in stage.groups]
            self._stages = [self._stage(k, stage) for k, stage in enumerate(plan.stages)]
        self._set_places(groups, source, plan.rows.numel())

    def _set_places(self, groups: Sequence[TimeGroup], source: Tensor, rows: int) -> None:
        """Where each row comes from and goes to, over the rows of all groups one after the other.

        A filler reads any row; no state outlives it and no gradient comes from it.
        """
        total = sum(g.rows.row_length * g.rows.num_rows for g in groups)
        index = torch.zeros(total, dtype=torch.int64)
        back = torch.zeros(source.numel(), dtype=torch.int64)
        place = torch.zeros(rows, dtype=torch.int64)
        base = 0
        for group in groups:
            there = base + group.rows.place
            index[there] = source[group.steps]
            back[source[group.steps]] = there
            own = slice(None) if group.own is None else group.own
            place[group.steps[own]] = there[own]
            base += group.rows.row_length * group.rows.num_rows
        self._index, self._from, self.place = (t.to(self.device) for t in (index, back, place))

    def _run(self, group: TimeGroup) -> _TimeEncoderGroup:
        rows, own, falling = group.rows, None, None
        if group.own is not None and self._temporal == "packed":
            own = torch.zeros(rows.row_length * rows.num_rows, dtype=torch.bool)
            own[rows.place[group.own]] = True
            own = own.view(rows.row_length, rows.num_rows).to(self.device)
        if self._temporal == "packed_sequence" and not self._attends:
            falling = FallingRows(rows.lengths, self.device)
        told = (t.to(self.device) for t in (group.begins, rows.sequence, rows.position))
        return _TimeEncoderGroup(DeviceRows(*told, own), group.ends.to(self.device), falling)

    def _stage(self, number: int, stage: SegmentStage) -> _DeviceStage:
        runs = [self._run(group) for group in stage.groups]
        order = None
        if runs:
            numbers = torch.cat([group.sequences for group in stage.groups])
            if not _in_order(numbers):
                order = torch.argsort(numbers).to(self.device)
        lists = None if stage.lists is None else stage.lists.to(self.device)
        return _DeviceStage(f"state{number}", runs, order, lists)

    def _moved(self, x: Tensor) -> Tensor:
        """Rows of the time encoder, those that stay first."""
        if self._move is None:
            return x
        received = self.exchange.fetch("move", x, self._move)
        with self.meter.phase(LOAD):
            return torch.cat([x.index_select(0, self._keep), received])

    def _arranged(self, x: Tensor) -> Tensor:
        with self.meter.phase(LOAD):
            return turn(arrange(x, self._index, self._from), self.meter, LOAD)

    def _recurrence(self, x: Tensor) -> Tensor:
        with self.meter.phase(TIME):
            moved = self._moved(x)
            flat = self._arranged(moved) if moved.shape[0] else moved
            sizes = [run.size for stage in self._stages for run in stage.runs]
            pieces = iter(flat.split(sizes) if sizes else ())
            states: tuple[Tensor, ...] | None = None
            outs: list[Tensor] = []
            for stage in self._stages:
                ends: list[Tensor] = []
                for run in stage.runs:
                    piece = next(pieces)
                    x = piece.view(*run.rows.begins.shape, piece.shape[1])
                    out, end = self._recur(run, x, states, stage.lists is not None)
                    outs.append(out.reshape(-1, out.shape[2]))
                    ends += end
                if stage.lists is not None:
                    states = self._hand_over(stage, ends)
            if not outs:
                return tie(flat.new_zeros(0, self.model.output_dim), flat)
            return turn(outs[0] if len(outs) == 1 else torch.cat(outs), self.meter, TIME)

    def _recur(
        self, run: _TimeEncoderGroup, x: Tensor, states: tuple[Tensor, ...] | None, goes_on: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs of a run, [T, N, D], and if it goes on elsewhere one tensor of end states."""
        if run.falling is not None:
            begins = run.rows.begins[0]
            out, last = run_packed_sequence(self.model, x, run.falling, begins, states)
            return out, [torch.cat(last, dim=1)] if goes_on else []
        starts = None if states is None else Starts(run.rows.begins, states)
        out, all_states = self.model.temporal_fused(x, run.rows, starts)
        return out, [_ends(all_states, run.ends)] if goes_on else []

    def _hand_over(self, stage: _DeviceStage, ends: list[Tensor]) -> tuple[Tensor, ...] | None:
        """States that the next stage's segments begin from; None where nothing arrives."""
        dims = self.model.state_dims
        if ends:
            x = ends[0] if len(ends) == 1 else torch.cat(ends)
            x = x if stage.order is None else x.index_select(0, stage.order)
        else:
            # Whether rows carry gradients must be alike on all workers.
            anchor = next(self.model.parameters()).reshape(-1)[:0]
            x = anchor.reshape(0, 1).expand(0, sum(dims))
        received = self.exchange.fetch(stage.name, x, stage.lists)
        self._fresh.append(received)
        if not received.shape[0]:
            return None
        return tuple(received.split(dims, dim=1))

    def _attention(self, x: Tensor) -> Tensor:
        with self.meter.phase(TIME):
            x = self._moved(x)
            x = self._joined(x, self.exchange.fetch("time", x, self._time_lists))
            if not self._runs:
                return tie(x.new_zeros(0, self.model.output_dim), x)
            flat = self._arranged(x)
            outs = []
            pieces = flat.split([run.size for run in self._runs])
            for run, piece in zip(self._runs, pieces, strict=True):
                shape = run.rows.begins.shape
                out = self.model.temporal_fused(piece.view(*shape, piece.shape[1]), run.rows)[0]
                outs.append(out.reshape(-1, out.shape[2]))
            return turn(outs[0] if len(outs) == 1 else torch.cat(outs), self.meter, TIME)


def _ends(states: Sequence[Tensor], ends: Tensor) -> Tensor:
    """[n, sum of dims]: all states of the sequences' last steps."""
    return torch.cat([take_rows(s.reshape(-1, s.shape[2]), ends) for s in states], dim=1)


def _orders(groups: Sequence[Tensor], rows: int) -> tuple[Tensor, Tensor]:
    """int64[R] each: the row at each place, group after group, and the place of each row."""
    order = torch.cat(list(groups)) if groups else torch.arange(rows)
    place = torch.empty_like(order)
    place[order] = torch.arange(rows)
    return order, place


def _in_order(numbers: Tensor) -> bool:
    """Return True if the numbers are 0, 1, 2, ..."""
    return bool((numbers == torch.arange(numbers.numel())).all())


def _other_rows(
    columns: Tensor, place: Tensor, halo: int, device: torch.device
) -> _OtherRows | None:
    """Where the rows lie that groups load beside their own ones; None where they load none.

    Args:
        columns: int64, of all groups; own rows by number, then those of other workers.
        place: int64[R], where each own row lies.
        halo: rows of other workers.
        device: of the rows.
    """
    if not columns.numel():
        return None
    rows = place.numel()
    if columns.numel() == halo and int(columns.min()) >= rows:
        index = columns - rows
        back = torch.full((halo,), -1)
        back[index] = torch.arange(halo)
        if int(back.min()) >= 0:
            return _OtherRows(index.to(device), back.to(device))
    own = columns < rows
    index = torch.where(own, place[columns.clamp(max=max(0, rows - 1))], columns)
    return _OtherRows(index.to(device), None)
