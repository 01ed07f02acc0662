"""The kernels of gpu_ceilings.cu, compiled where they run, and what is measured with them."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_timing import Timer
from kernel_resources import nvcc
from torch import Tensor

from dgbench.runtime.statistics import median

SOURCE = Path(__file__).with_name("gpu_ceilings.cu")
THREADS = 256
"""Of a block, as in the source of the kernels."""
ROOM = 1.3
"""Free memory that a table must leave, times its size."""


class BenchRefused(Exception):
    """A row that cannot be measured here; the message says why."""


@dataclass
class Bench:
    """The kernels, and the sizes that they are run with.

    Attributes:
        kernels: the compiled launchers. blocks: of a grid that fills the device.
        shrink: divides sizes and counts, for machines without a device.
    """

    device: str
    kernels: ctypes.CDLL
    blocks: int
    timer: Timer
    shrink: int = 1
    seed: int = field(default=0)

    @property
    def threads(self) -> int:
        return self.blocks * THREADS

    def size(self, of: float, least: int = 1) -> int:
        """A size or count, shrunk."""
        return max(least, round(of / self.shrink))

    def launch(self, name: str, *arguments: Any) -> None:
        """Start one; raises RuntimeError with the number of CUDA's error."""
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None
        given = [pointer(a) if isinstance(a, Tensor) else a for a in arguments]
        if status := getattr(self.kernels, name)(*given, ctypes.c_void_p(stream)):
            raise RuntimeError(f"{name}: CUDA error {status}")

    def seconds(self, name: str, *arguments: Any) -> float:
        """Median of a kernel's times."""
        return median(self.timer.on_device(lambda: self.launch(name, *arguments)))

    def table(self, nbytes: int, *, on_host: bool = False, fill: float = 1.0) -> Tensor:
        """float32 of so many bytes, all `fill`; on the host it is page-locked."""
        count = nbytes // 4
        if self.device == "cpu":
            return torch.full((count,), fill)
        if on_host:
            return torch.full((count,), fill, pin_memory=True)
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
        free -= torch.cuda.memory_allocated()
        if ROOM * nbytes > free:
            raise BenchRefused(
                f"a table of {nbytes / 1e9:.1f} GB does not fit, {free / 1e9:.1f} free"
            )
        return torch.full((count,), fill, device="cuda")


def pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def same(found: Tensor, each: float, name: str) -> None:
    """Raise where not all sums are `each`: then not all of the work was done."""
    if not bool((found == each).all()):
        wrong = found[found != each][0].item()
        raise RuntimeError(f"{name}: a thread has {wrong}, not {each}")


def request_bytes(threads: int, requests: int, width: int) -> int:
    """Bytes that threads ask for, each `requests` times `width`."""
    return threads * requests * width


def c64(number: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(number)


def compile_kernels(arch: str, folder: Path) -> Path:
    """Compile the kernels for one architecture, such as sm_90.

    Raises:
        BenchRefused: no compiler, or it fails.
    """
    if not (compiler := nvcc()):
        raise BenchRefused("no nvcc here to compile gpu_ceilings.cu with")
    made = folder / f"ceilings_{arch}.so"
    done = subprocess.run(
        [compiler, "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch={arch}",
         "-o", str(made), str(SOURCE)],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise BenchRefused(f"gpu_ceilings.cu does not compile for {arch}: {done.stderr[-300:]}")
    return made


def opened(options: Any, folder: Path) -> Bench:
    """The kernels and the sizes for the device."""
    blocks = 1
    if options.device == "cuda":
        facts = torch.cuda.get_device_properties(0)
        blocks = 8 * facts.multi_processor_count  # 2048 threads each
        torch.zeros(1, device="cuda")  # its context is there before the kernels are
    elif not options.library:
        raise BenchRefused("without a device the kernels must be compiled before: --library")
    library = options.library
    if not library:
        library = compile_kernels(f"sm_{facts.major}{facts.minor}", folder)
    timer = Timer(options.device, options.rounds, most_s=0.5)
    return Bench(options.device, ctypes.CDLL(str(library)), blocks, timer, options.shrink)
