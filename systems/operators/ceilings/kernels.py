"""The kernels of ceilings.cu, compiled for the device that is here, and calls of them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError

SOURCE = Path(__file__).with_name("ceilings.cu")
THREADS = 256
"""Of a block, as in the source of the kernels."""
MARGIN = 1.3
"""Free memory that a table must leave, times its size."""


@dataclass
class Bench:
    """The kernels, and the sizes that they are run with.

    Attributes:
        device: torch device of tables. kernels: the compiled launchers.
        blocks: of a grid that fills the device.
        scale: share of the stated sizes and counts.
    """

    device: str
    kernels: ctypes.CDLL
    blocks: int = 1
    scale: float = 1.0
    seed: int = field(default=0)

    @property
    def threads(self) -> int:
        return self.blocks * THREADS

    def size(self, of: float, least: int = 1) -> int:
        """A size or count, scaled."""
        return max(least, round(of * self.scale))

    def launch(self, name: str, *arguments: Any) -> None:
        """Start one; raises RuntimeError with the number of CUDA's error."""
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None
        given = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
        if status := getattr(self.kernels, name)(*given, ctypes.c_void_p(stream)):
            raise RuntimeError(f"{name}: CUDA error {status}")

    def table(self, nbytes: int, *, on_host: bool = False, fill: float = 1.0) -> Tensor:
        """float32 of so many bytes, all `fill`; on the host it is page-locked.

        Raises:
            UnsupportedError: it does not fit.
        """
        count = nbytes // 4
        if self.device != "cuda":
            return torch.full((count,), fill)
        if on_host:
            return torch.full((count,), fill, pin_memory=True)
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
        free -= torch.cuda.memory_allocated()
        if MARGIN * nbytes > free:
            sizes = f"{nbytes / 1e9:.1f} GB does not fit, {free / 1e9:.1f} free"
            raise UnsupportedError(f"a table of {sizes}")
        return torch.full((count,), fill, device="cuda")


def nvcc() -> str:
    """The compiler, or "" where there is none."""
    for place in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if place and (Path(place) / "bin" / "nvcc").exists():
            return str(Path(place) / "bin" / "nvcc")
    return shutil.which("nvcc") or ""


def compile_kernels(arch: str, folder: Path) -> Path:
    """Compile the kernels for one architecture, such as sm_90.

    Raises:
        UnsupportedError: no compiler, or it fails.
    """
    if not (compiler := nvcc()):
        raise UnsupportedError("no nvcc here to compile ceilings.cu with")
    made = folder / f"ceilings_{arch}.so"
    done = subprocess.run(
        [compiler, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch={arch}",
         "-o", str(made), str(SOURCE)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise UnsupportedError(f"ceilings.cu does not compile for {arch}: {done.stderr[-300:]}")
    return made


def open_bench(device: str, scale: float) -> Bench:
    """The kernels and the sizes for the device. Raises UnsupportedError."""
    facts = torch.cuda.get_device_properties(0)
    torch.zeros(1, device=device)  # its context is there before the kernels are
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernels(f"sm_{facts.major}{facts.minor}", Path(folder))
        # 2048 threads for each multiprocessor.
        return Bench(device, ctypes.CDLL(str(library)), 8 * facts.multi_processor_count, scale)
