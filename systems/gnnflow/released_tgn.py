"""TGN as torch_geometric releases it (examples/tgn.py), scored on our ranking tasks.

An outside check of our TGN: their memory, their encoding of time, their ring of last neighbours,
and their training loop, on the same events, batches and candidates. Differences to ours, which
follows TGL: frequencies of encoded times are drawn and not powers of ten, ages of neighbours count
from the last update of their memory and not from the time that is asked at, both encodings share
their weights, and dropout is 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader

from dgbench.models.ctdg.link import LinkPredictor
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.link_ranking import RankBlock, RankingTask, RankScores, rank_scores

if TYPE_CHECKING:
    from dgbench.datasets import EventStream

NEIGHBOURS: Final = 10
DROPOUT: Final = 0.1
HEADS: Final = 2


class _Network(nn.Module):
    """Memory, attention over last neighbours, and the scorer of pairs."""

    def __init__(self, num_nodes: int, width: int) -> None:
        super().__init__()
        message = IdentityMessage(1, width, width)
        self.memory = TGNMemory(num_nodes, 1, width, width, message, LastAggregator())
        self.attention = TransformerConv(
            width, width // HEADS, heads=HEADS, dropout=DROPOUT, edge_dim=1 + width
        )
        self.head = LinkPredictor(width)

    def forward(self, ids: Tensor, edges: Tensor, times: Tensor) -> Tensor:
        """Embeddings of `ids`; edges lead from neighbours to targets, by place in `ids`."""
        memory, updated = self.memory(ids)
        age = self.memory.time_enc((updated[edges[0]] - times).to(memory.dtype))
        features = torch.cat([age, age.new_zeros(age.shape[0], 1)], dim=1)
        return self.attention(memory, edges, features)


class ReleasedTgn:
    """A TGN of torch_geometric over one stream without features.

    Times are whole units from the first event on, as its memory keeps them.
    """

    def __init__(
        self, events: EventStream, *, width: int, batch: int, lr: float, seed: int
    ) -> None:
        """
        Args:
            events: the stream. width: floats of memories, times and embeddings, even.
            batch: events of a step. lr: of Adam. seed: of parameters, dropout and negatives.
        """
        if width < HEADS or width % HEADS:
            raise InvalidInputError(f"width is {width}, allowed are multiples of {HEADS}")
        self.events, self.batch = events, batch
        self._times = (events.t - events.t[0]).long()
        self._destinations = torch.unique(events.dst)
        self._place = torch.zeros(events.num_nodes, dtype=torch.int64)
        self._generator = torch.Generator().manual_seed(seed)
        self._seed = seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = _Network(events.num_nodes, width)
        self._loader = LastNeighborLoader(events.num_nodes, size=NEIGHBOURS)
        self._optimiser = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.taken = 0

    def reset(self, *, training: bool = False) -> None:
        """Forget all events, to train or to score; parameters stay.

        The mode changes first: theirs lets every memory take in its message when training ends.
        """
        self.model.train(training)
        self.model.memory.reset_state()
        self._loader.reset_state()
        self.taken = 0

    def train_epoch(self, last: int) -> float:
        """Train on events before `last` from an empty memory; returns the mean loss of an event."""
        self.reset(training=True)
        total = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=self._generator)))
            for first, end in self._batches(0, last):
                total += self._step(first, end) * (end - first)
        return total / max(1, last)

    def take(self, last: int) -> None:
        """Let memory and neighbours take in events up to `last`, without training."""
        with torch.no_grad():
            for first, end in self._batches(self.taken, last):
                self._take(first, end)

    def embed(self, nodes: Tensor) -> Tensor:
        """Embeddings [n, H] of vertices int64[n] from what was taken in."""
        ids, edges, events = self._loader(torch.unique(nodes))
        self._place[ids] = torch.arange(ids.numel())
        hidden = self.model(ids, edges, self._times[events])
        return hidden[self._place[nodes]]

    def rank(self, task: RankingTask, *, anew: bool = True) -> RankScores:
        """Rank the events of a task; afterwards all events before its last window are taken in.

        Args:
            anew: forget all events before; otherwise memories and neighbours go on from those that
                training or another ranking took in.
        """
        if anew:
            self.reset()
        self.model.eval()
        self.take(task.first)
        return rank_scores(task, _Ranker(self, task))

    def _batches(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        for begin in range(first, last, self.batch):
            yield begin, min(begin + self.batch, last)

    def _step(self, first: int, end: int) -> float:
        src, dst = self.events.src[first:end], self.events.dst[first:end]
        drawn = torch.randint(self._destinations.numel(), (end - first,), generator=self._generator)
        self._optimiser.zero_grad()
        hidden = self.embed(torch.cat([src, dst, self._destinations[drawn]]))
        positive, negative = self.model.head(hidden)
        loss = functional.softplus(-positive).mean() + functional.softplus(negative).mean()
        self._take(first, end)
        loss.backward()
        self._optimiser.step()
        self.model.memory.detach()
        return float(loss.detach()) / 2

    def _take(self, first: int, end: int) -> None:
        src, dst = self.events.src[first:end], self.events.dst[first:end]
        nothing = torch.zeros(end - first, 1)
        self.model.memory.update_state(src, dst, self._times[first:end], nothing)
        self._loader.insert(src, dst)
        self.taken = end


class _Ranker:
    """Scorer of the blocks of a task, which come in the order of time."""

    def __init__(self, tgn: ReleasedTgn, task: RankingTask) -> None:
        self._tgn, self._task, self._window = tgn, task, -1
        self._targets: Tensor | None = None

    @torch.no_grad()
    def __call__(self, block: RankBlock) -> Tensor:
        """float32[b, C]: logits of the block's pairs."""
        if block.window != self._window:
            self._window, self._targets = block.window, None
            self._tgn.take(block.seen)
        if self._targets is None or not block.shared:
            self._targets = self._tgn.embed(block.candidates[:1] if block.shared
                                            else block.candidates)  # fmt: skip
        sources = self._tgn.embed(block.src).unsqueeze(1)
        return self._tgn.model.head.pairs(sources, self._targets)
