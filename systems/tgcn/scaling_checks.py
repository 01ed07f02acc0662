"""Checks of Figure 10: loads and projections, rounds that swap whole parts, and ranks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.systems.base import RunContext
from dgbench.systems.tgcn.races import start_checks

if TYPE_CHECKING:
    from dgbench.systems.tgcn.projection import EpochLoad


def checked_load(trainer: Any, load: EpochLoad, part: str) -> ResultCheck:
    """Check of the pairs and rows of every interval against its events, part by part."""
    from dgbench.systems.tgcn.recounts import visiting_rows

    stream, size = trainer.data.events, trainer.parts.count
    pairs, rows, visiting = [], [], []
    for one in trainer.loads(0, trainer.data.train_end):
        src, dst = stream.src[one.events], stream.dst[one.events]
        negatives = trainer.data.negative[one.events]
        owner = [trainer.parts.of(ids).numpy() for ids in (src, dst, negatives)]
        key = np.concatenate([owner[0] * size + owner[1], owner[0] * size + owner[2]])
        pairs.append(np.bincount(key, minlength=size**2).reshape(size, size))
        named = np.arange(stream.num_nodes)
        if trainer.planner.touched:
            named = np.unique(np.concatenate([ids.numpy() for ids in (src, dst, negatives)]))
        of = trainer.parts.of(torch.from_numpy(named)).numpy()
        rows.append(np.bincount(of, minlength=size))
        visiting.append(visiting_rows(trainer, one.events))
    own = {"pairs": load.pairs, "rows": load.rows, "visiting": load.visiting}
    wanted = {"pairs": pairs, "rows": rows, "visiting": visiting}
    return equal(
        "counters", own, {name: np.array(x, dtype=np.float64) for name, x in wanted.items()},
        against=f"count over all edges, {part}",
    )  # fmt: skip


def checked_projection(load: EpochLoad, epoch: Any, size: Any, part: str) -> ResultCheck:
    """Check of the bytes that a projected epoch passes on: each vector to all other devices."""
    vectors = (load.devices - 1) * int(np.rint(load.visiting).sum()) * load.repeats
    return equal("bytes", epoch.moved, 3 * 4 * size.hidden * vectors, against=f"formula, {part}")


def checked_swap(devices: int) -> ResultCheck:
    """Check of a round that swaps whole parts of one vector, on small parts of uneven size."""
    from dgbench.systems.tgcn.recounts import check_round
    from dgbench.systems.tgcn.ring import LITERAL
    from dgbench.systems.tgcn.schedule import make_schedule, traffic

    ring = LITERAL if devices == len(LITERAL) else None
    schedule = make_schedule(devices, ring=ring, lean=False)
    rows = [3 + i for i in range(devices)]
    sent = int(traffic(schedule, rows, read=4, add=0).sum())
    # Every part moves in each of as many phases as there are devices.
    wanted = {"bytes": 4 * devices * sum(rows), "round": 0.0}
    own = {"bytes": sent, "round": check_round(schedule, "").gap}
    return equal("bytes", own, wanted, against=f"every part in every phase on {devices}")


def drawn_events(data: Any) -> tuple[int, int]:
    """First and last but one of the events that ranks are probed on, drawn at random."""
    from dgbench.systems.base.interaction_checks import EVENTS

    first = random.SystemRandom().randint(0, max(0, (data.train_end or len(data.events)) - EVENTS))
    return first, min(data.train_end or len(data.events), first + EVENTS)


def checked_ranks(
    task: Any,
    data: Any,
    run: Any,
    ranks: int,
    swapped: int,
    context: RunContext,
    timeout_s: float,
    size: tuple[int, int],
) -> list[ResultCheck]:
    """Checks of ranks after their epochs, of what they sent, and of a few edges in float64."""
    from dgbench.systems.base.interaction_audit import GroupOracle
    from dgbench.systems.base.interaction_checks import EXACT, compare
    from dgbench.systems.base.interactions import interaction_data
    from dgbench.systems.tgcn.rank_audit import audited_intervals
    from dgbench.systems.tgcn.ranked import train_ranked
    from dgbench.systems.tgcn.recounts import VECTORS, check_sample, visiting_rows
    from dgbench.systems.tgcn.scaling_runs import open_on

    whole = msgspec.structs.replace(task, strict_time=False)
    found = compare(whole, data, run.state, run.probe, f"{ranks} ranks after their epochs")
    found += audited_intervals(
        run.copies, GroupOracle(whole, data), f"{ranks} ranks", first=context.round == 1
    )
    alone = open_on(task, data, ranks, "dealt")
    visiting = sum(
        sum(visiting_rows(alone, load.events)) for load in alone.loads(0, data.train_end)
    )
    moved = (ranks - 1) * VECTORS * 4 * task.hidden_dim * visiting
    found.append(equal("bytes", swapped, moved, against="rows passed on in every interval"))
    found += check_sample(alone, f"{ranks} ranks")
    alone.close()
    count, intervals = size
    small = msgspec.structs.replace(task, events=count, intervals=intervals, share=1.0)
    last = interaction_data(
        data.events.select(max(0, len(data.events) - count), len(data.events)), small
    )
    plain = open_on(small, last, 1, "dealt", dtype=torch.float64)
    wanted = [plain.train_epoch() for _ in range(2)]
    both = train_ranked(
        small, ranks, data=last, epochs=2, dtype=torch.float64, device=context.device,
        timeout_s=timeout_s, vertex_cut="dealt",
    )  # fmt: skip
    about = {"against": "one device, compared with the float64 oracle", "part": f"{ranks} ranks"}
    found += [
        close("losses", both.losses, wanted, EXACT, **about),
        close("parameters", both.state, plain.state(), EXACT, **about),
        *start_checks(task, data, context.device),
    ]
    plain.close()
    return found
