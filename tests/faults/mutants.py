"""Guards that are broken on purpose: the campaign must lose something without each of them.

`python -m tests.faults --mutants` runs, for each, the kind that has to notice, in a process of its
own, and fails if it did not.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgbench.harness.runner import run, scratch, server
from dgbench.harness.store import files, store
from tests.faults import plugin_guards


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken guard: what breaks it, and the kind of fault that must notice."""

    broken: Callable[[], Any]
    kind: str


def _unchecked_rows() -> None:
    files.from_line = lambda line: line[files._START : -1]


def _unswept() -> None:
    store.Store._tidy = lambda self: None


def _no_copies() -> None:
    def alone(folder: Any, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return files.from_checked(folder / name), ""
        return None, ""

    store._read_kept = alone


def _unchecked_json() -> None:
    files._sum_of = lambda plain: None


def _unmarked() -> None:
    scratch.end_marked = lambda mark: []


def _temporary_files() -> None:
    server.empty = lambda: None
    server.leave = lambda: None
    scratch.Scratch.sweep = lambda self: []


def _strays() -> None:
    server.end_strays = lambda besides=0: ([], 0.0)


def _unlocked() -> None:
    store.Store._lock_folder = lambda self: None


def _half_made() -> None:
    store.from_checked = files.from_checked
    files.new_folder.__wrapped__.__globals__["_remove_left"] = lambda folder: None


def _deaf() -> None:
    run._Runner._signals = lambda self: contextlib.nullcontext()


MUTANTS = {
    "rows are read unchecked": Mutant(_unchecked_rows, "bit flipped in rows.jsonl"),
    "files of killed writers stay": Mutant(_unswept, "runner killed in a write"),
    "copies are not read": Mutant(_no_copies, "run, plan or provenance torn"),
    "the three files are unchecked": Mutant(_unchecked_json, "bit flipped in run, plan"),
    "processes are not found by their mark": Mutant(_unmarked, "fork server killed in a cell"),
    "temporary files stay": Mutant(_temporary_files, "cell killed from outside"),
    "strays live on": Mutant(_strays, "cell killed from outside"),
    "a run has no lock": Mutant(_unlocked, "two writers of one run"),
    "half a run's folder stays": Mutant(_half_made, "runner killed at an operation"),
    "Ctrl-C is not heard": Mutant(_deaf, "Ctrl-C once"),
}


MUTANTS |= {name: Mutant(*guard) for name, guard in plugin_guards.BROKEN.items()}


def run_mutants() -> int:
    """All of them; 1 where one was not noticed."""
    missed = 0
    for name, mutant in MUTANTS.items():
        command = [sys.executable, "-m", "tests.faults", "--broken", name, "--only", mutant.kind]
        unmarked = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_FAULT")}
        unmarked.pop("LD_PRELOAD", None)
        done = subprocess.run(command, capture_output=True, text=True, env=unmarked)
        losses = done.stdout.count("LOST in")
        noticed = done.returncode == 1 and losses > 0
        missed += not noticed
        word = f"noticed, {losses} losses" if noticed else f"NOT NOTICED ({done.returncode})"
        print(f"{name:40s} {mutant.kind:32s} {word}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} broken guards were noticed")
    return int(missed > 0)
