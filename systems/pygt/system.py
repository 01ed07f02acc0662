"""PyGT and the paper's three variants of it, as systems (PiPAD section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar

import torch

from dgbench.kernels_cuda.build_info import build_info
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import System, Technique, Trainer, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.pygt.released import cell_classes, origin, version
from dgbench.systems.pygt.trainer import PyGTTrainer, Variant


class PyGTSystem(System):
    """The released torch-geometric-temporal cells as they are."""

    name = "pygt"
    title = "PyGT"
    kind = "baseline"
    about = (
        "PyG-Temporal's own cells: one snapshot at a time, COO edges with 64-bit ids, "
        "normalisation and aggregation in every call, synchronous copies."
    )
    provenance = origin()
    code = "released" if version() else "re-implemented"
    enters = ("snapshot-training@1",)
    variant: ClassVar[Variant] = Variant()
    techniques = (
        Technique(
            "arena",
            "copy what a device would be sent into memory apart; CPU only",
            exact=True,
            source="dgbench: stand-in for a device",
            default=False,
            ours=True,
        ),
    )

    def unsupported(self, workload: Workload, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        if workload.norm != "sym":
            reasons.append(f"PyG's GCNConv normalises symmetrically only, not '{workload.norm}'")
        if workload.model == "evolvegcn" and workload.cell != "gru":
            reasons.append(f"the released EvolveGCNO has a GRU, not the cell '{workload.cell}'")
        if workload.model == "mpnn_lstm" and workload.loss_on == "every":
            reasons.append("the released MPNNLSTM returns the last snapshot's output only")
        return reasons

    def load_ahead(self) -> None:
        """Execute the released cells, and let PyG write the code of their convolutions."""
        with suppress(ImportError):
            from torch_geometric.nn import GCNConv

            GCNConv(1, 1)
            cell_classes().fixed_w(1, 1)

    def open(
        self,
        workload: Workload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> Trainer:
        on = self.switches(switches)
        if reasons := self.unsupported(workload, device):
            raise UnsupportedError(f"{self.name}: {'; '.join(reasons)}")
        if on["arena"] and torch.device(device).type != "cpu":
            raise UnsupportedError(
                f"{self.name}: 'arena' stands in for a device on the CPU, the device is '{device}'",
                hint="leave it off where copies are real",
            )
        data = workload_data.load(workload)
        return PyGTTrainer(
            workload, data, self.variant, device=device, meter=meter, arena=on["arena"]
        )


class PyGTASystem(PyGTSystem):
    """PyGT with asynchronous copies."""

    name = "pygt-a"
    title = "PyGT-A"
    about = "PyGT with copies from pinned memory on a stream of their own, one snapshot ahead."
    provenance = f"{origin()}, transfer re-implemented"
    code = "re-implemented"
    variant = Variant(asynchronous=True)


class PyGTRSystem(PyGTSystem):
    """PyGT-A with inter-frame reuse."""

    name = "pygt-r"
    title = "PyGT-R"
    about = "PyGT-A with the first layer's aggregation kept in host memory across frames."
    provenance = f"re-implemented on the cells: {origin()}"
    code = "re-implemented"
    variant = Variant(asynchronous=True, reuse=True)


class PyGTGSystem(PyGTSystem):
    """PyGT-R with CSR products for what is still aggregated."""

    name = "pygt-g"
    title = "PyGT-G"
    about = "PyGT-R with a CSR product (GE-SpMM style, CSC for the gradient) in place of scatter."
    provenance = f"re-implemented (GE-SpMM style) on the cells: {origin()}"
    code = "re-implemented"
    variant = Variant(asynchronous=True, reuse=True, csr=True)

    def unsupported(self, workload: Workload, device: str) -> list[str]:
        reasons = super().unsupported(workload, device)
        if torch.device(device).type == "cuda" and not (cuda := build_info()["cuda"])["usable"]:
            reasons.append(f"its GE-SpMM kernel is not usable here: {cuda['reason']}")
        return reasons
