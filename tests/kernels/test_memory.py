"""Freed memory is kept by the process that asked for it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from dgbench.kernels_cuda.build_info import build_info

# In a process of its own: the setting cannot be taken back.
PROGRAM = """
import resource
import torch
from dgbench.kernels_cuda.memory import keep_freed_memory

def faults(blocks):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(blocks):
        torch.empty(12 * 2**20).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
faults(40)  # until the heap has grown to its size
print(faults(20))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
@pytest.mark.skipif(
    build_info()["cpu"]["sanitizer"] != "", reason="sanitizers bring an allocator of their own"
)
def test_blocks_are_reused_without_page_faults():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # 20 blocks of 48 MiB have 240 thousand pages; some other allocation may still take a few.
    assert int(done.stdout) < 4000
