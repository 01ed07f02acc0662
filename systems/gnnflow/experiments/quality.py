"""Whole trainings on streams, ranked beside predictors that train nothing."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dgbench.lab.quality_study import (
    CONTINUED,
    UNTRAINED,
    BestEpoch,
    EpochClock,
    QualitySize,
    QualityStudy,
)
from dgbench.lab.result_checks import equal
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.link_study import (
    BATCH,
    PROTOCOL,
    SHARES,
    STREAMS,
    ends_of,
    observe_ranks,
    observe_task,
    ranking_task,
    score_baselines,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    INITIAL,
    MODEL_TITLES,
    graph_title,
    workload,
)
from dgbench.systems.gnnflow.experiments.trainer_checks import trainer_checks

if TYPE_CHECKING:
    from dgbench.systems.base.link_ranking import RankingTask
    from dgbench.systems.base.stream import StreamTrainer, StreamWorkload
    from dgbench.systems.base.stream_memory import MemoryState

LR: Final = 1e-3
RELEASED: Final = "torch_geometric"
"""Network of `released_tgn`, which no system of ours trains."""
SECONDS_AN_EVENT: Final = {"tgn": 1.2e-4, "tgat": 6.2e-4, "dysat": 1e-3, RELEASED: 1.4e-4}
"""Processor seconds of a training event and epoch of these sizes, measured on CollegeMsg and,
for TGN, on Enron, on one of two cores that others used, too. For estimates only."""
RANKED: Final = {
    "wikipedia": 1.4, "college-msg": 4.0, "email-eu-core": 0.5, "enron": 0.2,
    "sx-mathoverflow": 0.8,
}  # fmt: skip
"""Epochs of training that ranking takes as long as: measured on CollegeMsg with TGN, elsewhere in
proportion to vertices that are embedded, candidates times windows."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A way of training that is scored.

    Attributes:
        network: that is trained. title: the name shown.
        batch: events of an optimiser step. chunks: parts of a batch by which borders move from
            epoch to epoch (random chunk scheduling).
        replay: of one that follows the stream in rounds, old events that are trained on again per
            new one; None: epochs are over all events.
    """

    network: str
    title: str
    batch: int = BATCH
    chunks: int = 1
    replay: float | None = None


BATCHES: Final = (100, 1_000, 10_000)
"""Events of an optimiser step beside `BATCH`."""
CHUNKS: Final = 8
LONG: Final = 40
"""Epochs of a training that ends no sooner: on CollegeMsg scores on validation that rise over so
many are five times in a row below an earlier one on the way."""
CONTENDERS: Final[Mapping[str, Contender]] = {
    **{name: Contender(name, MODEL_TITLES[name]) for name in ("tgn", "tgat", "dysat")},
    "tgn_rounds": Contender("tgn", "TGN in rounds", replay=0.0),
    "tgn_replay": Contender("tgn", "TGN in rounds with replay", replay=1.0),
    "tgn_pyg": Contender(RELEASED, "TGN of torch_geometric's example"),
    "tgn_chunks": Contender("tgn", "TGN with random chunks", chunks=CHUNKS),
    **{
        f"tgn_{batch}": Contender("tgn", f"TGN in batches of {batch:,}", batch=batch)
        for batch in BATCHES
    },
    "tgn_long": Contender("tgn", f"TGN in {LONG} epochs"),
}
REARRANGED: Final = ("tgn_chunks", *(f"tgn_{batch}" for batch in BATCHES))
TECHNIQUES: Final = ("tgn_rounds", "tgn_replay", *REARRANGED, "tgn_long")
"""Contenders that are compared with the network trained in whole epochs of batches of `BATCH`."""
LARGE: Final = ("email-eu-core", "sx-mathoverflow")
SMALL: Final = ("wikipedia", "college-msg", "enron")
WHOLE: Final = QualitySize(
    (*SMALL, *LARGE),
    {
        "tgn": 20, "tgat": 3, "tgn_pyg": 10, "tgn_rounds": 3, "tgn_replay": 3,
        **dict.fromkeys(REARRANGED, 20), "dysat": 2, "tgn_long": LONG,
    },
    patience=5,
    patient={"tgn_long": LONG},
    only={
        **dict.fromkeys(("dysat", *TECHNIQUES), ("college-msg",)),
        "tgn_pyg": SMALL,
        "tgat": (*SMALL, *LARGE[:1]),
    },
    late=("enron", *LARGE),
)  # fmt: skip
SIZES: Final[Mapping[Preset, QualitySize]] = {
    "smoke": QualitySize(
        ("college-msg",),
        dict.fromkeys(
            ("tgn", "tgat", "dysat", "tgn_pyg", "tgn_replay", "tgn_chunks", "tgn_1000"), 1
        ),
        seeds=1,
        events=3_000,
        width=8,
    ),
    "quick": QualitySize(("enron",)),
    "full": QualitySize(("college-msg", "enron"), {"tgn": 5}),
    "paper": WHOLE,
    "quality": WHOLE,
}
"""Processor time on one core at most: half an hour in `full`, eight hours in `quality`."""


class StreamQuality(QualityStudy):
    paper = "gnnflow"
    name = "quality"
    title = "Quality beside predictors that train nothing"
    # Dictionaries alone decide nothing, and quick has no time to train beside them.
    presets = ("smoke", "full", "paper", "quality")
    metric = "mrr"
    measure = "mean reciprocal rank"
    heading = "Mean reciprocal rank of trained models and of dictionaries"
    own_data = "its scoring windows are chosen for the streams that it names"
    question = "Do the models that GNNFlow trains predict better than a dictionary?"
    reading = (
        f"{PROTOCOL} Models see ids and times: the data held has no features. DySAT sees features "
        "of vertices alone and has random ones. Memories are written anew by the kept parameters "
        "before the test, as TGL does; scores with those that the best epoch left, as in TGB's "
        "example and in validation, are told beside. "
        f"A training ends after {WHOLE.patience} epochs without a better score on validation; that "
        f"of {LONG} epochs goes on. TGB ranks in batches of 200 events instead of windows, which "
        "see less. torch_geometric's example (their memory, encoding of time and dropout) is "
        "trained on the same events with our learning rate. In rounds a model is trained on the "
        "first 30 % and then on each round's new events, three epochs each as in the paper; its "
        "last parameters are kept."
    )
    sizes = SIZES
    references = {name: CONTENDERS[name].network for name in TECHNIQUES}

    def seconds(self, preset: Preset, params: Mapping[str, Any]) -> float:
        size, dataset = SIZES[preset], str(params["dataset"])
        events = min(STREAMS[dataset].events, size.events or STREAMS[dataset].events)
        if params["part"] == UNTRAINED:
            return 10.0 + 2e-4 * events
        one = CONTENDERS[params["model"]]
        epoch = SECONDS_AN_EVENT[one.network] * SHARES[0] * events
        epochs = size.epochs[params["model"]] * (1.1 + (one.replay or 0.0))
        return 10.0 + epoch * (epochs + RANKED[dataset])

    def dataset_title(self, name: str) -> str:
        return graph_title(name)

    def epoch_work(self, dataset: str) -> int:
        return ends_of(STREAMS[dataset].events)[0]

    def model_title(self, name: str) -> str:
        return CONTENDERS[name].title

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        found = Measurement()
        size = SIZES[context.preset]
        with threads(1):  # at these widths a second thread costs more than it does
            if cell.params["part"] == UNTRAINED:
                _score_baselines(str(cell.params["dataset"]), size, found)
            elif CONTENDERS[cell.params["model"]].network == RELEASED:
                _train_released(cell.params, size, found)
            else:
                _train(cell.params, size, context, found)
        return found


def whole_task(dataset: str, model: str) -> StreamWorkload:
    """Workload of a whole training on a stream with the first seed."""
    return _task(dataset, model, 1, WHOLE)


def _task(dataset: str, contender: str, seed: int, size: QualitySize) -> StreamWorkload:
    one = CONTENDERS[contender]
    width = dict.fromkeys(("hidden_dim", "time_dim", "memory_dim"), size.width)
    return workload(
        BY_NAME[dataset], one.network, "full", seed=seed, events=size.events, batch=one.batch,
        chunks=one.chunks, lr=LR, node_dim=size.width if one.network == "dysat" else 0, edge_dim=0,
        **width,
    )  # fmt: skip


def _score_baselines(dataset: str, size: QualitySize, found: Measurement) -> None:
    from dgbench.systems.base.stream import load_stream, negatives

    task = _task(dataset, "tgn", 1, size)
    data = load_stream(task)
    ranking = ranking_task(data.events, dataset)
    score_baselines(found, ranking, negatives(task, data, ranking.first, ranking.last))
    found.data.update(data.describe())


def _train(
    params: Mapping[str, Any], size: QualitySize, context: RunContext, found: Measurement
) -> None:
    from dgbench.systems.base.stream import load_stream
    from dgbench.systems.base.stream_ranking import rank_stream
    from dgbench.systems.gnnflow.system import GnnflowSystem

    dataset, model = str(params["dataset"]), str(params["model"])
    task = _task(dataset, model, int(params["seed"]), size)
    data = load_stream(task)
    trainer = GnnflowSystem().open(task, device=context.device, data=data)
    end = len(data.events)
    first, last = ends_of(end)
    replay = CONTENDERS[model].replay
    ranking = ranking_task(data.events, dataset)
    if replay is not None:
        _follow(trainer, replay, first, size.epochs[model], found)
        trainer.prepare()
    else:
        trainer.prepare()
        validation = ranking_task(data.events, dataset, validation=True)
        best = BestEpoch(trainer.model, size.patience_of(model))
        left = _train_whole(trainer, validation, size.epochs[model], best, found)
        if left is not None:
            trainer.restore_memory(left)
            trainer.evaluate_range(first, last, remember=True)
            observe_ranks(found, rank_stream(trainer, ranking), of=CONTINUED)
    trainer.reset_memory()  # memories hold what the present parameters write of earlier events
    trainer.evaluate_range(0, last, remember=True)
    observe_ranks(found, rank_stream(trainer, ranking))
    found.observe("average_precision", trainer.evaluate_range(last, end).ap)
    observe_task(found, ranking)
    found.data.update(data.describe())
    found.checks += trainer_checks({CONTENDERS[model].title: trainer}, task, data)
    found.deviation["loss"] = max(one.gap for one in found.checks if one.of == "losses")
    trainer.close()


def _train_whole(
    trainer: StreamTrainer, validation: RankingTask, epochs: int, best: BestEpoch,
    found: Measurement,
) -> MemoryState | None:  # fmt: skip
    """Train on the events before those of validation; keep what ranks these best.

    Returns:
        Memories as the best epoch left them.
    """
    from dgbench.systems.base.stream_ranking import rank_stream

    left: MemoryState | None = None
    for epoch in range(epochs):
        trainer.reset_memory()
        clock = EpochClock()
        loss = trainer.train(0, validation.first, epoch=epoch)
        clock.observe(found, epoch=epoch)
        found.observe("loss", loss, epoch=epoch)
        mrr = rank_stream(trainer, validation).mrr
        found.observe("mrr", mrr, epoch=epoch, of="validation")
        if best.add(mrr):
            left = trainer.memory_state()
        if best.over:
            break
    best.restore()
    return left


def _train_released(params: Mapping[str, Any], size: QualitySize, found: Measurement) -> None:
    """Train and rank the example of torch_geometric on the same events and candidates."""
    from dgbench.systems.base.stream import load_stream
    from dgbench.systems.gnnflow.released_tgn import ReleasedTgn

    dataset, seed = str(params["dataset"]), int(params["seed"])
    data = load_stream(_task(dataset, "tgn", seed, size))
    tgn = ReleasedTgn(data.events, width=size.width, batch=BATCH, lr=LR, seed=seed)
    validation = ranking_task(data.events, dataset, validation=True)
    best, scores, left = BestEpoch(tgn.model, size.patience), [], None
    for epoch in range(size.epochs[str(params["model"])]):
        clock = EpochClock()
        loss = tgn.train_epoch(validation.first)
        clock.observe(found, epoch=epoch)
        found.observe("loss", loss, epoch=epoch)
        trained = deepcopy(tgn)
        scores.append(tgn.rank(validation).mrr)
        found.observe("mrr", scores[-1], epoch=epoch, of="validation")
        if best.add(scores[-1]):
            left = trained
        if best.over:
            break
    best.restore()
    ranking = ranking_task(data.events, dataset)
    if left is not None:
        observe_ranks(found, left.rank(ranking, anew=False), of=CONTINUED)
    observe_ranks(found, tgn.rank(ranking))
    observe_task(found, ranking)
    found.data.update(data.describe())
    again = tgn.rank(validation).mrr
    found.checks.append(equal("scores", [again], [max(scores)], against="the best epoch's ranks"))
    found.deviation["scores"] = found.checks[-1].gap


def _follow(trainer: Any, ratio: float, first: int, epochs: int, found: Measurement) -> None:
    """Train on events before `first` round by round, with `ratio` replayed events per new one."""
    from dgbench.systems.gnnflow.replay import Replay
    from dgbench.systems.gnnflow.rounds import rounds_by_time

    task, times = trainer.workload, trainer.data.events.t[:first]
    length = BY_NAME[task.dataset].round
    rounds = rounds_by_time(times, length, initial=INITIAL / SHARES[0])
    replay = Replay(ratio, task.seed) if ratio else None
    stream = trainer.follow(rounds, epochs=epochs, replay=replay, evaluate=False)
    clock = EpochClock()
    stream.begin(epochs)
    stream.play_all()
    clock.observe(found, 1 / epochs)
