"""Training by ranks that others started: kept after every epoch, and gone on with anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dgbench import datasets
from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.errors import (
    DgbenchError,
    InvalidInputError,
    StoreError,
    UnknownKeyError,
    UnsupportedError,
)
from dgbench.runtime.ranks import launch
from dgbench.runtime.ranks.hosts import RankHost, Refusal
from dgbench.systems.base.data_digest import digest
from dgbench.systems.base.rank_training import RankReport, RankTask, data_words, train_rank
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.training_file import TrainingFile
from dgbench.systems.base.workload_words import workload_from

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


def place(comm: Communicator, number: int = 0, hosts: int = 1) -> RankHost:
    first = comm.rank % (comm.size // hosts) == 0
    return RankHost(number, hosts, "here", "lo", first, 0)


def alone(task: RankTask) -> RankReport:
    comm = LocalCommunicator()
    torch.manual_seed(task.workload.seed)
    found = train_rank(comm, place(comm), task, None)
    assert isinstance(found, RankReport)
    return found


def one_of_two(comm: Communicator, task: RankTask, folders: list[Path]) -> Any:
    """Be a rank; each has a disk of its own."""
    kept = folders[comm.rank] if folders else None
    host = RankHost(comm.rank, comm.size, f"host{comm.rank}", "lo", True, 0)
    return train_rank(comm, host, replace(task, kept=kept), None)


@pytest.mark.parametrize("system", WORDS)
def test_a_training_goes_on_from_what_was_kept(system: str, tmp_path: Path) -> None:
    """Losses are those of a training that was never interrupted, to the last bit."""
    task = RankTask(system, workload(system), EPOCHS)
    whole = alone(task)
    assert len(whole.losses) == len(whole.seconds) == EPOCHS
    assert len(set(whole.losses)) == EPOCHS
    half = replace(task, epochs=2, kept=tmp_path)
    assert alone(half).losses == whole.losses[:2]
    rest = alone(replace(half, epochs=EPOCHS))
    assert rest.losses == whole.losses
    assert (rest.first_epoch, len(rest.seconds)) == (2, 2)
    again = alone(half)  # fewer epochs than were kept: nothing is left to train
    assert again.losses == whole.losses[:2]
    assert not again.seconds


@pytest.mark.parametrize("system", ["gnnflow", "tgcn"])
def test_only_the_training_part_of_a_stream_is_trained_on(system: str, monkeypatch: Any) -> None:
    """Events after the first 80 %, from the next time on, change nothing; the last before do."""
    training, task = get_system(system).rank_training(), workload(system)
    data = training.load(task)
    t = data.events.t
    end = int((t < t[round(0.8 * len(t))]).sum())
    assert 0 < end < len(t)

    def losses(first: int, last: int) -> list[float]:
        """Losses where the ends of these events lie elsewhere."""
        src = data.events.src.clone()
        src[first:last] = src[:1]
        changed = replace(data, events=replace(data.events, src=src))
        monkeypatch.setattr(type(training), "load", lambda self, task: changed)
        return alone(RankTask(system, task, 2)).losses

    plain = losses(0, 0)
    assert losses(end, len(t)) == plain
    assert losses(end - 5, end) != plain


def test_a_stream_without_a_training_part_is_refused(monkeypatch: Any) -> None:
    training, task = get_system("gnnflow").rank_training(), workload("gnnflow")
    data = training.load(task)
    same = replace(data, events=replace(data.events, t=torch.zeros_like(data.events.t)))
    monkeypatch.setattr(type(training), "load", lambda self, task: same)
    comm = LocalCommunicator()
    found = train_rank(comm, place(comm), RankTask("gnnflow", task, 1), None)
    assert isinstance(found, Refusal)
    assert "training part" in found.message


@pytest.mark.parametrize("system", WORDS)
def test_two_ranks_go_on_from_what_one_has_kept(system: str, tmp_path: Path) -> None:
    """Hosts of a training of one rank and an epoch, of which one has the disk."""
    task = RankTask(system, workload(system), EPOCHS)
    one, two = launch(one_of_two, 2, (task, []), timeout_s=100, threads=1)
    assert one.losses == two.losses
    assert one.losses == pytest.approx(alone(task).losses, rel=BAR)
    first = replace(task, epochs=1, kept=tmp_path / "a")
    alone(first)
    rest, _ = launch(
        one_of_two, 2, (task, [tmp_path / "a", tmp_path / "b"]), timeout_s=100, threads=1
    )
    assert rest.first_epoch == 1
    assert rest.losses == pytest.approx(one.losses, rel=BAR)
    files = [list((tmp_path / name).iterdir()) for name in "ab"]
    assert [len(found) for found in files] == [1, 1]
    kept = [torch.load(found[0], weights_only=True) for found in files]
    assert kept[0]["losses"] == kept[1]["losses"] == rest.losses
    assert [host.ranks for host in rest.hosts] == [[0], [1]]
    assert [host.address for host in rest.hosts] == ["host0", "host1"]


def test_a_damaged_file_is_refused_by_all_ranks(tmp_path: Path) -> None:
    task = RankTask("tgcn", workload("tgcn"), 1)
    file = TrainingFile.of(tmp_path / "b", "tgcn", task.workload)
    file.path.parent.mkdir()
    file.path.write_bytes(b"nothing that was kept")
    found = launch(
        one_of_two, 2, (task, [tmp_path / "a", tmp_path / "b"]), timeout_s=100, threads=1
    )
    assert found[0] == found[1]
    assert isinstance(found[0], Refusal)
    assert str(file.path) in found[0].message


def test_a_file_of_another_training_is_refused(tmp_path: Path) -> None:
    first, other = (
        TrainingFile.of(tmp_path, "tgcn", workload("tgcn", f"seed={seed}")) for seed in (1, 2)
    )
    assert first.path != other.path
    first.keep({"model": {}}, [1.0])
    assert other.read() is None
    first.path.rename(other.path)
    with pytest.raises(InvalidInputError, match="another training"):
        other.read()


def test_a_file_runs_nothing(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.write_text, (tmp_path / "exploded", "boom"))

    file = TrainingFile.of(tmp_path, "tgcn", workload("tgcn"))
    torch.save({"format": 1, "title": file.title, "losses": [], "state": {"x": Bomb()}}, file.path)
    with pytest.raises(InvalidInputError, match="holds no training"):
        file.read()
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TrainingFile.of(tmp_path, "tgcn", workload("tgcn"))
    file.keep({"a": torch.ones(2)}, [0.5])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        file.keep({"a": torch.zeros(2)}, [0.5, 0.25])
    assert file.read().losses == [0.5]
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


def test_a_rank_that_cannot_open_its_trainer_refuses_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dgbench.systems.tgcn.ranked import GridRanks

    def fail(self: object, comm: Communicator, *_: object) -> Any:
        if comm.rank == 1:
            raise DgbenchError("no room here", hint="make some")
        return real(self, comm, *_)

    real = GridRanks.open
    monkeypatch.setattr(GridRanks, "open", fail)
    task = RankTask("tgcn", workload("tgcn"), 1)
    found = launch(one_of_two, 2, (task, []), timeout_s=100, threads=1, start="auto")
    assert list(found) == [Refusal("no room here", "make some")] * 2


@pytest.mark.parametrize("system", WORDS)
def test_data_has_one_digest_that_any_number_changes(system: str) -> None:
    training, task = get_system(system).rank_training(), workload(system)
    data, again = training.load(task), training.load(task)
    assert digest(data) == digest(again)
    assert data_words(training, data) == data_words(training, again)
    assert "twin" in data_words(training, data)
    tensor = data.features if hasattr(data, "features") else data.events.t
    changed = tensor.clone()
    changed.view(-1)[-1] += 1
    if hasattr(data, "features"):
        other = replace(data, features=changed)
    else:
        other = replace(data, events=replace(data.events, t=changed))
    assert digest(other) != digest(data)


def test_a_digest_tells_layouts_apart_and_not_where_data_came_from() -> None:
    flat = torch.arange(6.0)
    assert digest(flat) != digest(flat.view(2, 3))
    assert digest(flat) != digest(flat.double())
    assert digest([flat, flat]) != digest([torch.cat([flat, flat])])
    assert digest(torch.empty(0)) != digest(torch.empty(0, 3))
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    events = datasets.open_events("college-msg", "twin", 0.05, 1)
    other = replace(events, origin=replace(events.origin, notes=("read elsewhere",)))
    assert digest(events) == digest(other)


def test_a_system_without_ranks_says_so() -> None:
    with pytest.raises(UnsupportedError, match="does not train on ranks"):
        get_system("pipad").rank_training()


def test_words_make_a_workload() -> None:
    found = workload_from(
        TimelineWorkload,
        ["model=tm_gcn", "bins=null", "snapshots=4", "theta=0.5", "norm=mean"],
        dataset="wiki",
    )
    assert found == TimelineWorkload(
        dataset="wiki", model="tm_gcn", snapshots=4, theta=0.5, norm="mean"
    )


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ([], InvalidInputError, ("'model'", "cd_gcn")),
        (["model=cd_gcn", "hidden_dim"], InvalidInputError, ("'hidden_dim'", "FIELD=VALUE")),
        (["model=cd_gcn", "hiden_dim=8"], UnknownKeyError, ("hiden_dim", "TimelineWorkload")),
        (["model=gcn"], UnknownKeyError, ("model 'gcn'",)),
        (["model=cd_gcn", "hidden_dim=wide"], InvalidInputError, ("'hidden_dim' is 'wide'",)),
        (["model=cd_gcn", "hidden_dim=0"], InvalidInputError, ("hidden_dim is 0",)),
        (["model=cd_gcn", "lr=1e-3", "lr=1"], InvalidInputError, ("'lr' is set twice",)),
        (["model=cd_gcn", "dataset=other"], InvalidInputError, ("'dataset' is set twice",)),
    ],
)
def test_words_that_make_none_are_named(
    words: list[str], error: type[Exception], said: tuple[str, ...]
) -> None:
    with pytest.raises(error) as found:
        workload_from(TimelineWorkload, words, dataset="wiki")
    assert all(part in str(found.value) for part in said)
