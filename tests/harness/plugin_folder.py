"""Distributions of third parties, written into a folder as an installer would."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SYSTEM: Final = """
from dgbench.systems.base import System, Technique


class Plugin(System):
    name, title, kind = "{name}", "Title of {name}", "baseline"
    about, provenance = "made by a test", "written for a test"
    techniques = (Technique("fast", "goes fast", True, "section 1"),)

    def unsupported(self, workload, device):
        return ["only in tests"]

    def open(self, workload, *, device="cpu", switches=None, meter=None):
        raise NotImplementedError
"""
"""Source of a system that can be described and does nothing."""

HARM: Final = {
    "patches": "import torch\ntorch.Tensor.index_select = lambda *a, **k: 1 / 0",
    "dtype": "import torch\ntorch.set_default_dtype(torch.float64)",
    "threads": "import torch, threading, time\ntorch.set_num_threads(7)\n"
    "threading.Thread(target=time.sleep, args=(900,)).start()",
    "environ": "import os\nos.environ.clear()\nos.environ['DGBENCH_CACHE'] = '/nowhere'",
    "deaf": "import signal\nfor number in (signal.SIGTERM, signal.SIGINT):\n"
    "    signal.signal(number, signal.SIG_IGN)",
    "forks": "import os, time\nif os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)",
    "doubles": "import os\nos.fork()",
    "prints": "print('\\x1b[31m' + 'noise ' * 200_000)",
    "walks": "import os\nos.chdir('/')",
}
"""Modules that can be imported, and what they do then to the process that imports them."""

BROKEN: Final = {
    "raises": ("raise ValueError('not today')", "ValueError: not today"),
    "exits": ("import sys\nsys.exit('I am done')", "SystemExit: I am done"),
    "interrupts": ("raise KeyboardInterrupt('no')", "KeyboardInterrupt: no"),
    "leaves": ("import os\nos._exit(7)", "ended with exit code 7"),
    "aborts": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    "closes": ("import os\nos.closerange(3, 4096)", "before it gave its system description"),
    "sleeps": ("import time\ntime.sleep(600)", "took longer than"),
    "misspelt": ("def of(:", "SyntaxError"),
}
"""Modules that cannot be imported: source, and words of the reason."""


def install(folder: Path, name: str, source: str, **groups: str) -> None:
    """Write module `plug_<name>` and the metadata of its distribution.

    Args:
        groups: entry-point group without `dgbench.` -> attribute; a system `Plugin` by default.
    """
    module = f"plug_{name}"
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    points = (groups or {"systems": "Plugin"}).items()
    text = "".join(f"[dgbench.{group}]\n{name} = {module}:{what}\n" for group, what in points)
    (info / "entry_points.txt").write_text(text)


def install_harmful(folder: Path) -> None:
    """Write all of `HARM` and `BROKEN`."""
    for name, code in (HARM | {name: code for name, (code, _) in BROKEN.items()}).items():
        install(folder, name, f"{code}\n{SYSTEM.format(name=name)}")


PAPER: Final = """
import os, sys, time
from pathlib import Path

from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Paper
from dgbench.lab.compare import paired
from dgbench.lab.evidence import finding
from dgbench.lab.experiment import Contender
from dgbench.lab.paper import PapersGraphs
from dgbench.lab.main_race import MainRace, RaceComparison, paired_systems
from dgbench.systems.base.registry import get_system


class Work(Experiment):
    paper, name = "tiny", "work"
    title, question = "Work", "Does it work?"
    claims = ("tiny-count",)
    sources = {{"speedup": "projected"}}
    control = {{"how": "nothing"}}
    own_data = "its graph is drawn"
    main_race = MainRace(
        verb="works",
        comparisons=(RaceComparison(subject="A", rival="B", ratio=paired_systems("b", "a")),),
        where={{"kind": ("timed", "slow")}},
    )

    def cells(self, preset, device):
        place = {{"paper": self.paper, "experiment": self.name}}
        return [Cell(**place, params={{"how": how}}, group=how, timeout_s={timeout_s})
                for how in os.environ.get("TINY_CELLS", "count").split()]

    def run(self, cell, context):
        how = cell.params["how"]
        if how == "sleep":
            time.sleep(600)
        if how == "clean":
            import torch

            theirs = [name for name in sys.modules if name.startswith("plug_")]
            found = Measurement(notes=[
                ",".join(theirs), str(torch.get_default_dtype()),
                str(torch.ones(2).index_select(0, torch.tensor([1]))),
            ])
            found.observe("edges", len(theirs))
            return found
        if how == "negative":
            found = Measurement()
            found.observe("edges", -1)
            return found
        if how != "count":
            get_system(how)
        found = Measurement()
        found.observe("edges", 7)
        return found

    def figures(self):
        def points(rows):
            return [{{"row": r.params["how"], "value": 1.0, "row_ids": [r.id]}} for r in rows]

        return [FigureSpec("sweep", "work", "Work", points, {{"xlabel": "x"}})]

    def answer(self, rows):
        return f"{{len(rows)}} rows."


def count(claim, rows):
    held = [r for r in rows if r.params.get("how") == "count"]
    return finding(held, measured=len(held), holds=True)


PAPER = Paper(
    name="tiny", title="Tiny", venue="a test", about="A paper of a third party.", system="tiny",
    ledger=Path(__file__).with_name("tiny.yaml"), experiments=(Work(),),
    checks={{"tiny-count": count}}, graphs=PapersGraphs({{"wiki"}}, ("drawn-",)),
    contenders={{"best": Contender("tiny", "The best")}},
)
"""
"""Source of a paper whose cells are those of `TINY_CELLS`."""

LEDGER: Final = """- id: tiny-count
  where: Section 1
  statement: It counts.
  kind: ordering
  value: it counts
  needs: {gpus: 0, cpu_only_ok: true}
"""


def install_paper(folder: Path, *, timeout_s: float = 60.0) -> None:
    """Write the paper `tiny`."""
    (folder / "tiny.yaml").write_text(LEDGER)
    install(folder, "tiny", PAPER.format(timeout_s=timeout_s), papers="PAPER")
