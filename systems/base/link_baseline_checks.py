"""Ranks of predictors that train nothing by dictionaries that take in events one by one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from dgbench.kernels_cuda.ranking import rank_columns
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.systems.base.link_ranking import RankBlock

if TYPE_CHECKING:
    from dgbench.systems.base.link_baselines import LinkBaseline
    from dgbench.systems.base.link_ranking import RankingTask

AGAINST: Final = "dictionaries over the past"
CHECKED: Final = (
    "edgebank", "edgebank_window", "local_recency", "global_recency", "popularity",
    "pair_then_popularity",
)  # fmt: skip
"""Predictors whose scores are exact; those of PopTrack are sums that round in another order."""
BLOCKS: Final = 3


def baseline_check(
    task: RankingTask, baselines: dict[str, LinkBaseline], window: float
) -> ResultCheck:
    """Check mean ranks of the first events of some windows, the first and the last among them.

    Args:
        baselines: by name. window: time that `edgebank_window` looks back.
    """
    blocks = list(task.blocks())
    step = max(1, (len(blocks) - 1) // (BLOCKS - 1))
    found: dict[str, list[float]] = {}
    wanted: dict[str, list[float]] = {}
    for block in [*blocks[::step][: BLOCKS - 1], blocks[-1]]:
        plain = _plain_ranks(task, block, window)
        for name in CHECKED:
            ranks = rank_columns(
                baselines[name](block), block.column, block.skip_offsets, block.skip
            )
            found.setdefault(name, []).append(float(ranks.mean[0]))
            wanted.setdefault(name, []).append(plain[name])
    return equal("ranks", found, wanted, against=AGAINST)


def _plain_ranks(task: RankingTask, block: RankBlock, window: float) -> dict[str, float]:
    """Mean rank of a block's first event by method."""
    events, src = task.events, int(block.src[0])
    opens = float(block.opens)
    last_of_pair: dict[tuple[int, int], tuple[int, float]] = {}
    last_of: dict[int, int] = {}
    count: Counter[int] = Counter()
    newest = 0.0
    past = zip(events.src.tolist(), events.dst.tolist(), events.t.tolist(), strict=True)
    for number, (u, v, t) in enumerate(past):
        if t >= opens:
            break
        last_of_pair[u, v], last_of[v], newest = (number, t), number, t
        count[v] += 1
    total = max(1, sum(count.values()))

    def scores(v: int) -> dict[str, float]:
        pair = last_of_pair.get((src, v))
        return {
            "edgebank": float(pair is not None),
            "edgebank_window": float(pair is not None and pair[1] >= newest - window),
            "local_recency": float(pair[0]) if pair else -1.0,
            "global_recency": float(last_of.get(v, -1)),
            "popularity": float(count[v]),
            "pair_then_popularity": 2.0 * (pair is not None) + count[v] / total,
        }

    left_out = set(block.skip[: int(block.skip_offsets[1])].tolist())
    true = int(block.column[0])
    own = scores(int(block.candidates[0, true]))
    others = [
        scores(v)
        for column, v in enumerate(block.candidates[0].tolist())
        if column != true and column not in left_out
    ]
    return {
        name: 1
        + sum(one[name] > own[name] for one in others)
        + sum(one[name] == own[name] for one in others) / 2
        for name in CHECKED
    }
