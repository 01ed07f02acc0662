"""Interleaved races of two builds: the same cells of both, process by process, in one run.

Each side is a run of its own commit by its own runner, stopped before each process until its turn
comes. A third side is the first one again: how far it lies from itself in the same minutes is the
noise floor.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.compare import Comparison, compare_states
from dgbench.harness.states import State
from dgbench.harness.store import Store
from dgbench.harness.track import side
from dgbench.harness.track.builds import Build, BuildFailed
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError

A: Final = "a"
B: Final = "b"
CONTROL: Final = "control"
"""Names of the sides and of their folders; the control runs the build of A."""
PATIENCE_S: Final = 20.0
"""Seconds that a side gets to end in order."""


class CannotRace(InvalidInputError):
    """A cell that is not in both commits, or that one of them cannot run here."""


Progress = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class RaceRequest:
    """Cells of a race, and how often they run.

    Attributes:
        cells: patterns, as `pipad/fig10 * pipad`; the main races without any.
        rounds: processes a cell and side. preset, device: of all cells. one: a single cell.
    """

    cells: tuple[str, ...] = ()
    rounds: int = 5
    preset: str = "quick"
    device: str = "cpu"
    one: bool = False

    @property
    def papers(self) -> list[str]:
        """Papers of the cells; none where a pattern leaves that open."""
        heads = [pattern.partition("/") for pattern in self.cells]
        closed = all(slash and not set(head) & set("*?[") for head, slash, _ in heads)
        return [head for head, _, _ in heads] if closed else []


@dataclass(frozen=True, slots=True)
class CommitRace:
    """An interleaved race that was run: its folder, its rows side by side, and lone cells."""

    folder: Path
    comparison: Comparison
    lone: dict[str, list[str]] = field(default_factory=dict)


def run_race(
    a: Build, b: Build, choice: RaceRequest, folder: Path, progress: Progress = lambda text: None
) -> CommitRace:
    """Race two builds and compare them.

    Args:
        folder: the sides' runs come to lie in it, in a folder for each. progress: told of turns.

    Raises:
        UnknownKeyError: no cell has such a name. InvalidInputError: several have, where one is
            asked for. CannotRace: no cell is in both. BuildFailed: a build does not run.
    """
    builds = {A: a, B: b, CONTROL: a}
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        sides = {name: stack.enter_context(_Side(builds[name], folder / name)) for name in builds}
        for one in sides.values():  # all of them import at once
            one.tell(preset=choice.preset, device=choice.device, papers=choice.papers)
        told = {name: one.hear() for name, one in sides.items()}
        for name in (A, B):
            for problem in told[name]["broken"]:
                progress(f"warning: {builds[name].revision.short}: {problem}")
        planned = {name: {_key(c): (i, c) for i, c in enumerate(t["cells"])}
                   for name, t in told.items()}  # fmt: skip
        chosen = choose(planned, choice)
        race = secrets.token_hex(4)
        for name, one in sides.items():
            command = " ".join(["dgbench", *sys.argv[1:]])
            settings = {"race": race, "side": name, "command": command,
                        "revision": builds[name].revision.sha}  # fmt: skip
            one.tell(
                chosen=[planned[name][key][0] for key in chosen],
                rounds=choice.rounds,
                root=str((folder / name).resolve()),
                settings=settings,
            )
        stores = {name: one.hear() for name, one in sides.items()}
        steps = [tuple(step) for step in stores[A]["steps"]]
        take_turns(sides, {step: place for place, step in enumerate(steps)}, progress)
    states = {
        name: State.of([Store.open(Path(stores[name]["path"]))], name=builds[name].revision.short)
        for name in builds
    }
    lone = {
        name: [cell_name(json.loads(key)) for key in planned[name] if key not in planned[other]]
        for name, other in ((A, B), (B, A))
    }
    found = compare_states(states[A], states[B], control=states[CONTROL])
    return CommitRace(folder, found, lone)


def take_turns(sides: Any, places: dict[tuple[int, int], int], progress: Progress) -> None:
    """Let sides run one process at a time: A B A', and in even rounds A' B A.

    Args:
        sides: name -> side, the ones that wait for a turn. places: (cell, round) -> place.
    """
    waiting = {name: one.turn() for name, one in sides.items()}
    while any(waiting.values()):
        place, turn = min((places[turn], turn) for turn in waiting.values() if turn)
        due = [name for name, wanted in waiting.items() if wanted == turn]
        progress(f"process {place + 1} of {len(places)} of each side, round {turn[1]}")
        for name in due if turn[1] % 2 else due[::-1]:
            sides[name].tell(go=True)
            waiting[name] = sides[name].turn()


def choose(planned: dict[str, dict[str, tuple[int, dict]]], choice: RaceRequest) -> list[str]:
    """Keys of the cells of a race, in the order of A's plan.

    Args:
        planned: side -> key of a cell -> its place and what the side said of it.
    """
    first, second = planned[A], planned[B]
    names = {key: cell_name(json.loads(key)) for key in {**first, **second}}
    if choice.cells:
        for pattern in choice.cells:
            if not any(_matches(pattern, key, names, first) for key in names):
                near = difflib.get_close_matches(pattern, set(names.values()), n=5, cutoff=0.4)
                raise UnknownKeyError(
                    f"no cell of preset '{choice.preset}' is called '{pattern}'",
                    hint="near it: " + "; ".join(near) if near else "list them: dgbench list",
                )
        asked = [k for k in names if any(_matches(p, k, names, first) for p in choice.cells)]
    else:
        asked = [key for key, (_, cell) in first.items() if cell["main"]]
    both = [key for key in asked if key in first and key in second]
    ready = [key for key in both if not (first[key][1]["reason"] or second[key][1]["reason"])]
    if not ready:
        reasons = {side[k][1]["reason"] for k in both for side in (first, second)} - {""}
        why = "; ".join(sorted(reasons)) or f"{names[asked[0]] if asked else 'none'} is in one only"
        raise CannotRace(f"no cell can be raced in both commits: {why}")
    if choice.one and len(ready) > 1:
        raise InvalidInputError(
            f"{len(ready)} cells are called {' '.join(choice.cells)}, one is needed",
            hint="\n".join(sorted(names[key] for key in ready)[:12]),
        )
    return ready


def cell_name(key: Sequence[Any]) -> str:
    """`pipad/fig10 flickr evolvegcn pipad`: a cell as rows say it, too."""
    paper, experiment, _, params = key
    words = [str(value) for value in params.values() if value is not None and value is not False]
    return " ".join([f"{paper}/{experiment}", *words])


def new_folder_name(*revisions: Any) -> str:
    """Name of the folder of a race: when, and of which commits."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return "-".join(["ab", stamp, *(one.short for one in revisions)])


def search_name(a: Any, b: Any, *settings: object) -> str:
    """Name of the folder of a search: of which commits, and a hash of what is looked for."""
    key = hashlib.sha256(msgspec.json.encode([a.sha, b.sha, *settings])).hexdigest()[:8]
    return f"bisect-{a.short}-{b.short}-{key}"


def _key(cell: dict[str, Any]) -> str:
    return msgspec.json.encode(cell["key"], order="deterministic").decode()


def _matches(pattern: str, key: str, names: dict[str, str], first: dict[str, Any]) -> bool:
    if key in first and len(pattern) >= 8 and first[key][1]["hash"].startswith(pattern):
        return True
    return fnmatch.fnmatchcase(names[key], pattern)


class _Side:
    """A process that runs the cells of a build, one message at a time."""

    def __init__(self, build: Build, folder: Path) -> None:
        self.build, self.done = build, False
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "side.log"
        paths = [str(build.path), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"DGBENCH_COMMIT": build.revision.sha} if (build.path / "dgbench").is_dir() else {}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", Path(side.__file__).read_text(encoding="utf-8")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYTHONSAFEPATH": "1",
                    "DGBENCH_OFFLINE": "1",
                    "GIT_CEILING_DIRECTORIES": str(build.path.parent),  # may lie in a clone
                    **own,
                },
                start_new_session=True,  # Ctrl-C is ours to pass on, in order
            )

    def __enter__(self) -> _Side:
        return self

    def tell(self, **message: Any) -> None:
        """Send a message; a side that has ended is found out when it is heard."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def hear(self) -> dict[str, Any]:
        """The next message. Raises BuildFailed where the side fails or ends instead."""
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        message = json.loads(line) if line else {"error": self._last_words()}
        if error := message.get("error") or message.get("trouble"):
            raise BuildFailed(self.build.revision, f"does not run: {error}", hint=str(self.log))
        if "package" in message:
            own = self.build.path / "dgbench"
            if own.is_dir() and Path(message["package"]) != own.resolve():
                raise BuildFailed(
                    self.build.revision,
                    f"does not run: {message['package']} is imported in its place",
                    hint="an editable install goes before it; install dgbench plainly",
                )  # fmt: skip
        return message

    def turn(self) -> tuple[int, int] | None:
        """The cell and round that the side waits with, None when it is done."""
        message = self.hear()
        self.done = bool(message.get("done"))
        waits = message.get("waits")
        return (waits[0], waits[1]) if waits else None

    def _last_words(self) -> str:
        said = self.log.read_text(errors="replace").strip().splitlines()
        return said[-1] if said else f"it ended with exit code {self.process.wait()}"

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        if self.process.poll() is None:
            # A process that runs is stopped as by Ctrl-C; one that waits for a turn sees the end.
            if not self.done:
                self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(OSError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()  # type: ignore[union-attr]
