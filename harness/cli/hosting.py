"""`dgbench ranks`: one training by several ranks, on one host or several."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.values import path_option


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("ranks", short_help="Train by ranks, on one host or several.")(ranks)


def ranks(
    system: str = typer.Argument(..., metavar="SYSTEM", help="One that trains on ranks."),
    dataset: str = typer.Option(..., "--dataset", help="Name of a card."),
    settings: list[str] = typer.Option(
        None, "--set", metavar="FIELD=VALUE", help="A field of the workload; may be repeated."
    ),
    epochs: int = typer.Option(5, "--epochs", help="Epochs in all.", min=1),
    ranks_per_host: int = typer.Option(1, "--ranks-per-host", help="Ranks of each host."),
    hosts: str = typer.Option("1", "--hosts", help="Number of hosts, or fewest and most: 1:2."),
    rendezvous: str = typer.Option(
        "", "--rendezvous", help="HOST:PORT where hosts meet, the same on each; one of them has it."
    ),
    interface: str = typer.Option(
        "", "--interface", help="For rows (default: the one that leads to the rendezvous)."
    ),
    keep: Path = path_option(
        "--keep", "Folder where each host keeps the training after every epoch, to go on from."
    ),
    restarts: int = typer.Option(3, "--restarts", help="Starts after a loss.", min=0),
    wait: float = typer.Option(600.0, "--wait", help="Seconds to wait for hosts.", min=1),
    lost_after: int = typer.Option(15, "--lost-after", help="Seconds of a lost host's silence."),
    timeout: float = typer.Option(
        600.0, "--timeout", help="Seconds that a rank waits for others at most.", min=1
    ),
    device: str = typer.Option("cpu", "--device", help="cpu or cuda."),
    threads: int = typer.Option(1, "--threads", help="Of each rank.", min=1),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
) -> None:
    """Train a system by ranks; the host of the rendezvous prints losses, bytes and seconds.

    On several hosts the same command is started on each. Hosts of other versions, settings, data or
    time refuse each other. After a loss the ranks are started again, and go on from what was kept.

    Example: dgbench ranks esdg --dataset college-msg --set model=cd_gcn --ranks-per-host 2

    Example: dgbench ranks dgc --dataset college-msg --set model=dysat --hosts 2 --rendezvous
    node01:29500 --keep kept
    """
    # Read where torch is loaded: each lost connection is a page of warnings else.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from dgbench.harness.terminal.hosts import summary
    from dgbench.harness.terminal.text import columns, say, say_json
    from dgbench.runtime.ranks.hosts import HostSettings, launch_on_hosts, parse_hosts
    from dgbench.runtime.threads import one_thread
    from dgbench.systems.base.rank_training import RankTask, data_words, train_rank

    least, most = parse_hosts(hosts)
    training, workload = _training(system, dataset, settings or [], device)
    how = HostSettings(
        least=least,
        most=most,
        ranks=ranks_per_host,
        rendezvous=rendezvous,
        interface=interface,
        wait_s=wait,
        lost_after_s=lost_after,
        restarts=restarts,
        timeout_s=timeout,
        device=device,
        threads=threads,
        seed=workload.seed,
    ).check()
    task = RankTask(system, workload, epochs, keep)
    with one_thread():  # ranks are forks, which cannot take a pool of threads over
        data = training.load(workload)
        trained_on = data_words(training, data)
    facts = _facts(task, trained_on)
    if device != "cpu":
        data = None  # ranks are no forks, so each opens it
    report, address = launch_on_hosts(train_rank, (task, data), how, facts)
    if not address.here:
        say(f"{address.own}: done; {address.place} has the result", sys.stderr)
        return
    found = {"system": system, "workload": workload, "data": trained_on, "report": report}
    if as_json:
        say_json(found)
    else:
        say(summary(found, columns()))


def _training(system: str, dataset: str, settings: list[str], device: str) -> tuple[Any, Any]:
    """The system's training on ranks, and the workload.

    Raises:
        UnknownKeyError, InvalidInputError, UnsupportedError: none such, or not by this system.
    """
    from dgbench.runtime.errors import UnsupportedError
    from dgbench.systems.base.registry import get_system
    from dgbench.systems.base.workload_words import workload_from

    found = get_system(system)
    training = found.rank_training()
    if found.trains is None:
        raise UnsupportedError(f"{system} trains nothing")
    workload = workload_from(found.trains[0], settings, dataset=dataset)
    if reasons := found.unsupported(workload, device):
        raise UnsupportedError(f"{system} cannot train this here: {'; '.join(reasons)}")
    return training, workload


def _facts(task: Any, trained_on: str) -> dict[str, str]:
    """Facts that have to be equal on all hosts, as words by name."""
    import platform

    import msgspec
    import torch

    import dgbench
    from dgbench.harness.machine.provenance import code_version

    return {
        "dgbench version": dgbench.__version__,
        "dgbench commit": str(code_version().get("commit") or "unknown"),
        "torch version": torch.__version__,
        "Python version": ".".join(platform.python_version_tuple()[:2]),
        "system": task.system,
        "workload": msgspec.json.encode(task.workload, order="sorted").decode(),
        "number of epochs": str(task.epochs),
        "data": trained_on,
    }
