"""Plugins that do harm by kind and name, each with the row that it must get."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.observed import told

NAN, INF, MIB = float("nan"), float("inf"), 1 << 20
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]


@dataclass(frozen=True, slots=True)
class Harm:
    """A behaviour, and its row: its status, and words of its reason or notes.

    Attributes:
        run: from the cell's context to what the plugin returns.
    """

    run: Callable[[RunContext], Any]
    status: str
    words: str = ""


class Spiteful:
    """An object that fails whatever is done with it."""

    def item(self) -> Any:
        raise KeyError("not for you")

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(f"not {name}")


def nested() -> dict[str, Any]:
    """A dictionary that holds itself."""
    data: dict[str, Any] = {}
    data["again"] = data
    return data


def garbage(make: Callable[[], Any]) -> Harm:
    """A result that cannot be kept."""
    return Harm(lambda _: make(), "crash", "garbage")


LARGE = "bytes, at most 1,048,576 are kept"
NONSENSE = {
    "loss_nan": Harm(lambda _: told({"loss": torch.tensor(NAN)}), "check", "not finite: loss"),
    "deviation_nan": Harm(
        lambda _: Measurement(deviation={"output": NAN}), "check", "deviation['output'] is nan"
    ),
    "many_samples": Harm(
        lambda _: told(samples=[1e-9 + i * 1e-16 for i in range(1_000_000)]), "crash", LARGE
    ),
    "the_class": Harm(lambda _: Measurement, "crash", "instead of a Measurement"),
    "colours": Harm(lambda _: Measurement(notes=["\x1b[31mred\x1b[0m plain"]), "ok", "red plain"),
    "giant": garbage(lambda: told({"edges": 10**400})),
    "strange_name": garbage(lambda: told({"\x07\x1b[31mred": 1.0})),
    "nested": garbage(lambda: Measurement(data=nested())),
    "half_a_letter": garbage(lambda: Measurement(notes=["half a letter: \ud800"])),
    "object": garbage(lambda: Measurement(data={"of": object()})),
    "spiteful": garbage(lambda: told({"loss": Spiteful()})),
}
"""Measurements that are none, by name."""


class Mute(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(make: Callable[[], BaseException], words: str) -> Harm:
    """A behaviour that raises."""

    def run(context: RunContext) -> Any:
        raise make()

    return Harm(run, "crash", words)


RAISED = {
    "mute": raising(Mute, "Mute"),
    "at_length": raising(lambda: ValueError("x" * 40_000_000), "40,000,000 letters"),
    "by_leaving": raising(lambda: SystemExit(0), "SystemExit: 0"),
    "by_ctrl_c": raising(KeyboardInterrupt, "KeyboardInterrupt"),
}
"""Errors by name."""


def leave(*commands: Callable[[], Any]) -> Callable[[RunContext], Measurement]:
    """A behaviour that starts something, and ends before it does."""

    def run(context: RunContext) -> Measurement:
        for command in commands:
            command()
        return Measurement()

    return run


def daemon() -> None:
    """Fork twice, into a session of its own."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(120)
        os._exit(0)
    time.sleep(0.05)


def temporary_files() -> None:
    """A folder that may not be written to, and a socket."""
    folder = Path(tempfile.mkdtemp())
    (folder / "big").write_bytes(bytes(MIB))
    folder.chmod(0o500)
    socket.socket(socket.AF_UNIX).bind(os.path.join(tempfile.gettempdir(), "socket"))


ONE = "left 1 process running"
LEFT = {
    "thread": Harm(
        leave(lambda: threading.Thread(target=time.sleep, args=(120,), name="hurry").start()),
        "ok", "left 1 thread running when it was done: hurry",
    ),
    "session": Harm(leave(lambda: subprocess.Popen(SLEEP, start_new_session=True)), "ok", ONE),
    "daemon": Harm(leave(daemon), "ok", ONE),
    "stopped": Harm(
        leave(lambda: subprocess.Popen(SLEEP).send_signal(signal.SIGSTOP)), "ok", ONE
    ),
    "eight": Harm(
        leave(*[lambda: subprocess.Popen(SLEEP)] * 8), "ok", "left 8 processes running"
    ),
    "files": Harm(leave(temporary_files), "ok"),
}  # fmt: skip
"""Leftovers by name."""


def print_for_ever() -> None:
    """Fill the log."""
    while True:
        os.write(2, b"x" * MIB)


def closed_streams() -> None:
    """Close what is printed to, and fail."""
    sys.stdout.close()
    sys.stderr.close()
    raise ValueError("unseen")


def no_log() -> None:
    """Put a folder in the place of the log."""
    path = Path(os.readlink("/proc/self/fd/1"))
    path.unlink()
    path.mkdir()


PRINTED = {
    "without_end": Harm(leave(print_for_ever), "crash", "printed more than 256 MiB"),
    "closed": Harm(leave(closed_streams), "crash", "ValueError: unseen"),
    "no_log": Harm(leave(no_log), "ok"),
}
"""Output by name."""

HARMS = {"nonsense": NONSENSE, "raised": RAISED, "left": LEFT, "printed": PRINTED}


def run(cell: Cell, context: RunContext) -> Any:
    """Do `cell.params["harm"]`, a name of one of `HARMS`."""
    kind, _, name = str(cell.params["harm"]).partition("/")
    return HARMS[kind][name].run(context)
