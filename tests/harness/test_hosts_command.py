"""`dgbench ranks` on two hosts: the losses of one, bytes as on the wire, losses of hosts mended."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import namespaces
import pytest
import torch
from namespaces import Host

from dgbench.harness.cli import main
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.ranks.hosts import RankHost
from dgbench.systems.base.rank_training import RankReport, RankTask, train_rank
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.workload_words import workload_from

pytestmark = pytest.mark.machines_arithmetic

DATASET = "college-msg"
TWIN = ["source=twin", "scale=0.05"]
WORDS = {
    "esdg": ["model=cd_gcn", "bins=12", "hidden_dim=32", "source=twin", "scale=0.3"],
    "tgcn": ["events=200", "hidden_dim=8", "intervals=4", *TWIN],
}
PORT = 29500
LIMIT_S = 480.0

# What rows cost on Ethernet beside their bytes. A segment of TCP carries at most MSS bytes behind
# HEADERS: 14 of Ethernet, 20 of IPv4, 20 of TCP and 12 of its time stamps. The receiver confirms
# each segment at most once, by a segment without rows.
HEADERS = 14 + 20 + 20 + 12
MSS = 1500 - 20 - 20 - 12
# Gloo announces a message, is told to send it, and sends it: three preambles of 48 bytes, each of
# which may be a segment of its own, and be confirmed by one.
PREAMBLE = 48
# A ring over two ranks sends a tensor in two halves of two pieces each.
MESSAGES = 4


def overhead_bound(rows: int, operations: int) -> int:
    """Most bytes beside `rows` that leave a host of two ranks, which exchange as many both ways."""
    messages = MESSAGES * (operations + 2)  # a barrier before the epochs and one after them
    segments = math.ceil(rows / MSS) + 3 * messages
    return 3 * messages * PREAMBLE + 2 * segments * HEADERS


def words_of(system: str, *more: str) -> list[str]:
    settings = [word for setting in WORDS[system] for word in ("--set", setting)]
    return ["ranks", system, "--dataset", DATASET, *settings, "--json", *more]


def one_host(comm: Communicator, task: RankTask) -> Any:
    """Be a rank of a host that has them all."""
    return train_rank(comm, RankHost(0, 1, "here", "lo", comm.rank == 0, 0), task, None)


def on_one_host(system: str, epochs: int, ranks: int = 2) -> RankReport:
    kind = get_system(system).trains[0]
    task = RankTask(system, workload_from(kind, WORDS[system], dataset=DATASET), epochs)
    return launch(one_host, ranks, (task,), timeout_s=LIMIT_S, threads=1)[0]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(namespaces.two_hosts())
        except namespaces.Unsupported as reason:
            pytest.skip(str(reason))
        yield found


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code and output of a program, once it has ended."""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def meeting_place(host: Host) -> list[str]:
    return ["--hosts", "2", "--rendezvous", f"{host.address('control')}:{PORT}"]


def test_two_hosts_train_as_one(hosts: tuple[Host, Host], warm_python: list[str]) -> None:
    """The same losses to the last bit; counted bytes are those on the wire but for its headers.

    The control of the training has a link of its own, so that rows are alone on theirs.
    """
    before = [host.sent("rows") for host in hosts]
    words = words_of("esdg", "--epochs", "2", *meeting_place(hosts[0]), "--interface", "rows")
    started = [host.start(warm_python, *words) for host in hosts]
    (code, out, err), (other_code, other_out, other_err) = map(ended, started)
    assert (code, other_code) == (0, 0), err + other_err
    assert not other_out
    report = json.loads(out)["report"]
    one = on_one_host("esdg", 2)
    assert report["losses"] == one.losses
    assert len(set(one.losses)) == 2
    assert report["carrier"] == "gloo"
    assert [host["ranks"] for host in report["hosts"]] == [[0], [1]]
    for number, (host, found) in enumerate(zip(hosts, report["hosts"], strict=True)):
        counted = report["exchanged"][number][1 - number]
        bound = overhead_bound(max(map(max, report["exchanged"])), report["operations"])
        assert counted <= found["sent_bytes"] <= counted + bound
        # The kernel says as much for all that the ranks did, forming their group included.
        assert found["sent_bytes"] <= host.sent("rows") - before[number]
        assert host.sent("control") > 0
    # Rows are large: headers are what the bound allows beside them.
    rows = max(map(max, report["exchanged"]))
    assert overhead_bound(rows, report["operations"]) < 0.15 * rows
    # They went through the limit of the link, which lets a burst pass at once.
    allowed = namespaces.BYTES_PER_S * sum(report["seconds"]) + 2 * namespaces.BURST
    assert max(found["sent_bytes"] for found in report["hosts"]) <= allowed
    assert report["exchanged"] == one.exchanged


@pytest.mark.nightly
def test_a_lost_host_costs_no_epoch_that_was_kept(
    hosts: tuple[Host, Host], warm_python: list[str], tmp_path: Path
) -> None:
    """Another host comes in its place, with an empty disk."""
    one, two = hosts
    # Long enough for a host on a busy machine to be heard of: else no group ever stands.
    words = words_of("tgcn", "--epochs", "5", "--lost-after", "10")
    words += meeting_place(one)
    lost = two.start(warm_python, *words, "--keep", str(tmp_path / "two"), hangs=2)
    first = one.start(warm_python, *words, "--keep", str(tmp_path / "one"))
    wait_for_epochs(tmp_path / "one", 3, first)
    two.lose()
    assert lost.wait(LIMIT_S) != 0
    new = two.start(warm_python, *words, "--keep", str(tmp_path / "new"))
    code, out, err = ended(first)
    assert code == 0, err
    assert ended(new)[0] == 0
    report = json.loads(out)["report"]
    assert report["losses"] == on_one_host("tgcn", 5).losses
    assert report["first_epoch"] == 3
    assert report["hosts"][0]["restarts"] == 1
    assert len(report["hosts"]) == 2
    assert not one.processes()
    assert not two.processes()


def wait_for_epochs(folder: Path, epochs: int, process: subprocess.Popen[str]) -> None:
    """Return when a host has kept so many epochs."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for file in folder.glob("*.pt"):
            with contextlib.suppress(OSError):
                if len(torch.load(file, weights_only=True)["losses"]) >= epochs:
                    return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError(f"no {epochs} epochs were kept")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ranks", "esgd", "--dataset", DATASET], ("system 'esgd'", "esdg")),
        (["ranks", "tgcn", "--dataset", DATASET, "--hosts", "2"], ("--rendezvous",)),
        (["ranks", "tgcn", "--dataset", DATASET, "--hosts", "x"], ("hosts are 'x'",)),
        (["ranks", "tgcn", "--dataset", DATASET, "--ranks-per-host", "0"], ("are 0",)),
    ],
)
def test_mistakes_are_said_before_anything_starts(
    words: list[str], said: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    found = capsys.readouterr()
    assert not found.out
    assert all(part in found.err for part in said)
