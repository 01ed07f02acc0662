"""A system of a third party: torch's CSR product, normalised once per snapshot. 40 lines."""

import torch

from dgbench.datasets.transforms import factors
from dgbench.systems.base import System, Technique
from dgbench.systems.base.data import load
from dgbench.systems.base.training import FrameTrainer


class CsrTrainer(FrameTrainer):
    def __init__(self, workload, data, keep, **options):
        super().__init__(workload, data, **options)
        self.keep, self.kept = keep, {}

    def raw(self, t):
        return self.data.features[t]

    def first(self, t):
        return self.apply(t, self.raw(t))

    def apply(self, t, h):
        if t not in self.kept or not self.keep:
            csr = self.data.topology[t]
            ones = torch.ones(csr.nnz) if csr.values is None else csr.values
            shape = (csr.num_rows, csr.num_cols)
            matrix = torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), ones, shape)
            self.kept[t] = *factors(csr, "sym"), matrix
        row, col, matrix = self.kept[t]
        x = h * col[:, None]
        return row[:, None] * (matrix @ x + x)

    def outputs(self, times):
        return self.model.forward_frame(self, times)


class TorchCsrSystem(System):
    name, title, kind = "torch-csr", "Torch CSR", "baseline"
    provenance = "an example of a plugin"
    enters = ("snapshot-training@1",)
    techniques = (Technique("keep", "keep each snapshot's normalised matrix", True, "example"),)

    def unsupported(self, workload, device):
        reasons = ["only norm 'sym' is written"] if workload.norm != "sym" else []
        return reasons + (["only the CPU is written"] if device != "cpu" else [])

    def open(self, workload, *, device="cpu", switches=None, meter=None):
        keep = self.switches(switches)["keep"]
        return CsrTrainer(workload, load(workload), keep, device=device, meter=meter)
