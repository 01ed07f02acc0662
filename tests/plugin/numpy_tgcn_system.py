"""A foreign system of a third party: `numpy_tgcn.py` in an interpreter of its own."""

import os
import sys
from pathlib import Path

from dgbench.systems.base.foreign import Foreign, ForeignSystem


class NumpyTgcnSystem(ForeignSystem):
    name, title, kind = "numpy-tgcn", "T-GCN in numpy", "baseline"
    provenance = "an example of a foreign contender"
    code = "re-implemented"
    enters = ("snapshot-training@1",)
    foreign = Foreign(
        python=os.environ.get("NUMPY_TGCN_PYTHON", sys.executable),
        module="numpy_tgcn",
        path=Path(__file__).parent,
    )

    def unsupported(self, workload, device):
        reasons = super().unsupported(workload, device)
        if not reasons and (workload.model, workload.norm) != ("tgcn_model", "sym"):
            reasons.append("only tgcn_model with norm 'sym' is written")
        return reasons + (["only the CPU is written"] if device != "cpu" else [])
