"""Program of a host: `host_program.py NAMESPACE CHANGES WORD...` is `dgbench WORD...` there.

Changes make the host another one than this machine is, as JSON:

- `clock`: seconds that its clock is ahead.
- `torch`, `dgbench`: versions that it has.
- `data`: a number that is added to the first event's time.
- `fails`: what each epoch fails with.
- `hangs`: epochs that it keeps; then it stands still, before it keeps another one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from namespaces import enter


def change(changes: dict[str, Any]) -> None:
    """Be another host from here on."""
    if "clock" in changes:
        from dgbench.runtime.ranks import agreement

        agreement.wall_clock = lambda: time.time() + changes["clock"]
    if "torch" in changes:
        import torch

        torch.__version__ = changes["torch"]
    if "dgbench" in changes:
        import dgbench

        dgbench.__version__ = changes["dgbench"]
    if "data" in changes:
        from dgbench.systems.tgcn.ranked import GridRanks

        load = GridRanks.load

        def shifted(self: GridRanks, workload: Any) -> Any:
            data = load(self, workload)
            data.events.t[0] += changes["data"]
            return data

        GridRanks.load = shifted
    if "hangs" in changes:
        from dgbench.systems.base.adam import AdamTrainer

        keep, done = AdamTrainer.training_state, []

        def hang(self: AdamTrainer) -> dict[str, Any]:
            done.append(1)
            while len(done) > changes["hangs"]:
                time.sleep(1)
            return keep(self)

        AdamTrainer.training_state = hang
    if "fails" in changes:
        from dgbench.systems.tgcn.ranked import GridRanks

        def fail(*_: object) -> None:
            raise RuntimeError(changes["fails"])

        GridRanks.train_epoch = fail


if __name__ == "__main__":
    enter(sys.argv[1])
    change(json.loads(sys.argv[2]))
    from dgbench.harness.cli import main

    main(sys.argv[3:])
