"""One side of a race between commits: runs cells of the dgbench that it imports, turn by turn.

The text of this module is given to an interpreter that imports a commit's build, so it uses only
what older commits have, too. Messages are JSON, a line each: it is asked on its standard input and
answers on its standard output.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answer until the other end closes."""
    answers = os.fdopen(os.dup(1), "w")
    questions = os.fdopen(os.dup(0), "r")
    os.dup2(2, 1)  # whatever a package prints goes to the log
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def tell(**message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    def ask() -> dict[str, Any]:
        line = questions.readline()
        if not line:
            raise KeyboardInterrupt
        return json.loads(line)

    code = 0
    try:
        run(ask, tell)
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        traceback.print_exc()
        tell(error=f"{type(error).__name__}: {error}")
        code = 1
    plugins = sys.modules.get("dgbench.harness.plugins.process")
    if plugins is not None and hasattr(plugins, "close_all"):
        plugins.close_all()
    sys.stderr.flush()
    os._exit(code)  # nobody waits for torch to be unloaded


def run(ask: Any, tell: Any) -> None:
    """Tell the cells of a preset, then run those that are chosen, each process when told to."""
    import msgspec

    import dgbench
    from dgbench.harness.plan import Plan
    from dgbench.harness.plugins import Broken, find_paper, paper_names
    from dgbench.harness.runner import run_plan
    from dgbench.harness.runner.listener import Listener
    from dgbench.harness.store import Store

    asked = ask()
    wanted = asked["papers"]  # none means all
    found = [find_paper(name) for name in paper_names() if not wanted or name in wanted]
    papers = [one for one in found if not isinstance(one, Broken)]

    def build() -> Any:
        return Plan.build(papers, None, asked["preset"], asked["device"], control="none")

    plan = settled_offline(build)
    races = {
        (p.name, e.name) for p in papers for e in p.experiments if getattr(e, "main_race", None)
    }
    tell(
        package=os.path.dirname(os.path.abspath(dgbench.__file__)),
        broken=[
            f"{one.name} is left out: {one.reason}" for one in found if isinstance(one, Broken)
        ],
        cells=[
            {
                "key": [c.cell.paper, c.cell.experiment, c.cell.group, c.cell.params],
                "main": (c.cell.paper, c.cell.experiment) in races,
                "hash": c.hash,
                "reason": c.reason if c.status else "",
            }
            for c in plan.cells
        ],
    )
    asked = ask()
    plan.cells = [plan.cells[index] for index in asked["chosen"]]
    for planned in plan.cells:
        planned.cell = msgspec.structs.replace(planned.cell, repeats=asked["rounds"], phases=False)
    cells = [planned.cell for planned in plan.cells]

    class TurnWaiter(Listener):
        def on_start(self, cell: Any, round: int) -> None:
            if cell in cells:
                tell(waits=[cells.index(cell), round])
                ask()

    with Store.create(asked["root"], asked["settings"], plan) as store:
        tell(path=str(store.path), steps=[[step.index, step.round] for step in plan.steps])
        summary = run_plan(plan, store, listener=TurnWaiter(), limits=False)
    tell(done=True, trouble=summary.trouble)


def settled_offline(build: Any) -> Any:
    """A plan that knows which of its data are here; nothing is fetched."""
    try:
        from dgbench.datasets.first_use import settle_sources
        from dgbench.harness.plan.sources import settled
    except ImportError:  # an older commit
        return build()
    return settled(build, lambda names: settle_sources(names, fetching=False))


if __name__ == "__main__":
    main()
