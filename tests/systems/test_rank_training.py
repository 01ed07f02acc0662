"""Training by ranks that others started: kept after every epoch, and gone on with anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dgc_ranks import as_ranks

from dgbench import datasets
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import (
    DgbenchError,
    InvalidInputError,
    StoreError,
    UnknownKeyError,
    UnsupportedError,
)
from dgbench.runtime.ranks.hosts import RankHost, Refusal
from dgbench.systems.base.data_digest import digest
from dgbench.systems.base.rank_training import RankTask, train_rank
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.training_file import TrainingFile
from dgbench.systems.base.workload_words import workload_from
from dgbench.systems.tgcn.ranked import GridRanks

WORDS = {
    "esdg": ["model=cd_gcn", "bins=6"],
    "dgc": ["model=dysat", "bins=6", "hidden_dim=8"],
    "gnnflow": [
        "model=tgn", "events=120", "node_dim=4", "edge_dim=4", "hidden_dim=8", "time_dim=4",
        "memory_dim=4", "fanouts=[3]", "batch=40",
    ],
    "tgcn": ["events=200", "hidden_dim=8", "intervals=4"],
}  # fmt: skip
EPOCHS = 4
BAR = 1e-4
"""Of losses of another number of ranks: sums in another order, over a dozen updates in float32."""


@pytest.fixture(autouse=True)
def stream_in_days(monkeypatch: Any) -> None:
    """Ages in seconds enlarge the last bit of their weights, which sums over ranks round apart."""
    training = type(get_system("gnnflow").rank_training())
    load = training.load

    def in_days(self: Any, task: Any) -> Any:
        data = load(self, task)
        return replace(data, events=replace(data.events, t=data.events.t / 86400))

    monkeypatch.setattr(training, "load", in_days)


def workload(system: str, *words: str) -> Any:
    given = ["source=twin", "scale=0.05", *WORDS[system], *words]
    return workload_from(get_system(system).trains[0], given, dataset="college-msg")


def trained(task: RankTask) -> Any:
    """Report of a single rank."""
    torch.manual_seed(task.workload.seed)
    return train_rank(LocalCommunicator(), RankHost(0, 1, "here", "lo", True, 0), task, None)


def one_of_two(comm: Communicator, task: RankTask, folders: list[Path]) -> Any:
    """Be a rank; each has a disk of its own."""
    host = RankHost(comm.rank, comm.size, f"host{comm.rank}", "lo", True, 0)
    return train_rank(comm, host, replace(task, kept=folders[comm.rank]), None)


@pytest.mark.parametrize("system", WORDS)
def test_a_training_goes_on_from_what_was_kept(system: str, tmp_path: Path) -> None:
    """Losses are those of a training that was never interrupted, to the last bit; of two ranks, of
    which one has the disk, within rounding."""
    task = RankTask(system, workload(system), EPOCHS)
    whole = trained(task)
    assert len(whole.losses) == len(set(whole.losses)) == len(whole.seconds) == EPOCHS
    half = replace(task, epochs=2, kept=tmp_path)
    assert trained(half).losses == whole.losses[:2]
    rest = trained(replace(half, epochs=EPOCHS))
    assert rest.losses == whole.losses
    assert (rest.first_epoch, len(rest.seconds)) == (2, 2)
    again = trained(half)  # fewer epochs than were kept: nothing is left to train
    assert (again.losses, again.seconds) == (whole.losses[:2], [])
    folders = [tmp_path / "a", tmp_path / "b"]
    trained(replace(task, epochs=1, kept=folders[0]))
    rest, other = as_ranks(2, one_of_two, task, folders)
    assert rest.first_epoch == 1
    assert rest.losses == other.losses == pytest.approx(whole.losses, rel=BAR)
    files = [file for folder in folders for file in folder.iterdir()]
    kept = [torch.load(file, weights_only=True)["losses"] for file in files]
    assert kept == [rest.losses] * 2
    assert [(host.ranks, host.address) for host in rest.hosts] == [([0], "host0"), ([1], "host1")]


@pytest.mark.parametrize("system", ["gnnflow", "tgcn"])
def test_only_the_training_part_of_a_stream_is_trained_on(system: str, monkeypatch: Any) -> None:
    """Events after the first 80 %, from the next time on, change nothing; the last before do."""
    training, task = get_system(system).rank_training(), workload(system)
    data = training.load(task)
    t = data.events.t
    end = int((t < t[round(0.8 * len(t))]).sum())

    def losses(first: int, last: int) -> list[float]:
        """Losses where the ends of these events lie elsewhere."""
        src = data.events.src.clone()
        src[first:last] = src[:1]
        changed = replace(data, events=replace(data.events, src=src))
        monkeypatch.setattr(type(training), "load", lambda self, task: changed)
        return trained(RankTask(system, task, 2)).losses

    plain = losses(0, 0)
    assert losses(end, len(t)) == plain
    assert losses(end - 5, end) != plain


def test_ranks_that_cannot_train_refuse_for_all(monkeypatch: Any, tmp_path: Path) -> None:
    training, task = get_system("gnnflow").rank_training(), workload("gnnflow")
    data = training.load(task)
    same = replace(data, events=replace(data.events, t=torch.zeros_like(data.events.t)))
    with monkeypatch.context() as patch:
        patch.setattr(type(training), "load", lambda self, task: same)
        assert isinstance(trained(RankTask("gnnflow", task, 1)), Refusal)  # no training part
    task, folders = RankTask("tgcn", workload("tgcn"), 1), [tmp_path / "a", tmp_path / "b"]
    file = TrainingFile.of(folders[1], "tgcn", task.workload)
    file.path.parent.mkdir()
    file.path.write_bytes(b"nothing that was kept")
    one, other = as_ranks(2, one_of_two, task, folders)
    assert one == other
    assert isinstance(one, Refusal)
    assert str(file.path) in one.message
    file.path.unlink()
    right = GridRanks.open

    def fail(self: object, comm: Communicator, *given: object) -> Any:
        if comm.rank == 1:
            raise DgbenchError("no room here", hint="make some")
        return right(self, comm, *given)

    monkeypatch.setattr(GridRanks, "open", fail)
    assert as_ranks(2, one_of_two, task, folders) == [Refusal("no room here", "make some")] * 2
    with pytest.raises(UnsupportedError):
        get_system("pipad").rank_training()


# --- files and digests ----------------------------------------------------------------------------


def test_a_file_runs_nothing_and_holds_one_training(tmp_path: Path, monkeypatch: Any) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.write_text, (tmp_path / "exploded", "boom"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    first, other = (
        TrainingFile.of(tmp_path, "tgcn", workload("tgcn", f"seed={seed}")) for seed in (1, 2)
    )
    first.keep({"a": torch.ones(2)}, [0.5])
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(StoreError):
            first.keep({"a": torch.zeros(2)}, [0.5, 0.25])
    assert first.read().losses == [0.5]  # the one before
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]
    assert other.read() is None
    first.path.rename(other.path)
    with pytest.raises(InvalidInputError):
        other.read()
    bomb = {"format": 1, "title": first.title, "losses": [], "state": {"x": Bomb()}}
    torch.save(bomb, first.path)
    with pytest.raises(InvalidInputError):
        first.read()
    assert not (tmp_path / "exploded").exists()


def test_a_digest_tells_layouts_apart_and_not_where_data_came_from() -> None:
    flat = torch.arange(6.0)
    different = [flat, flat.view(2, 3), flat.double(), [flat, flat], [torch.cat([flat, flat])],
                 torch.empty(0), torch.empty(0, 3)]  # fmt: skip
    assert len({digest(one) for one in different}) == len(different)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    events = datasets.open_events("college-msg", "twin", 0.05, 1)
    other = replace(events, origin=replace(events.origin, notes=("read elsewhere",)))
    assert digest(events) == digest(other)


def test_words_make_a_workload_or_are_named() -> None:
    words = ["model=tm_gcn", "bins=null", "snapshots=4", "theta=0.5", "norm=mean"]
    assert workload_from(TimelineWorkload, words, dataset="wiki") == TimelineWorkload(
        dataset="wiki", model="tm_gcn", snapshots=4, theta=0.5, norm="mean"
    )
    with pytest.raises(InvalidInputError, match="model"):
        workload_from(TimelineWorkload, [], dataset="wiki")
    for error, name, *words in (
        (InvalidInputError, "hidden_dim", "hidden_dim"),
        (UnknownKeyError, "hiden_dim", "hiden_dim=8"),
        (InvalidInputError, "hidden_dim", "hidden_dim=wide"),
        (InvalidInputError, "hidden_dim", "hidden_dim=0"),
        (InvalidInputError, "lr", "lr=1e-3", "lr=1"),
        (InvalidInputError, "dataset", "dataset=other"),
    ):
        with pytest.raises(error, match=name):
            workload_from(TimelineWorkload, ["model=cd_gcn", *words], dataset="wiki")
    with pytest.raises(UnknownKeyError, match="gcn"):
        workload_from(TimelineWorkload, ["model=gcn"], dataset="wiki")
