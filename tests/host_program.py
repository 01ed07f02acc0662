"""Program of a host: `host_program.py NAMESPACE HANGS WORD...` is `dgbench WORD...` there.

After so many epochs that it keeps (-1: never) it stands still, before it keeps another one.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from namespaces import enter


def hang_after(epochs: int) -> None:
    """Stand still behind so many epochs."""
    from dgbench.systems.base.adam import AdamTrainer

    keep, done = AdamTrainer.training_state, []

    def hang(self: AdamTrainer) -> dict[str, Any]:
        done.append(1)
        while len(done) > epochs:
            time.sleep(1)
        return keep(self)

    AdamTrainer.training_state = hang


if __name__ == "__main__":
    enter(sys.argv[1])
    if (epochs := int(sys.argv[2])) >= 0:
        hang_after(epochs)
    from dgbench.harness.cli import main

    main(sys.argv[3:])
