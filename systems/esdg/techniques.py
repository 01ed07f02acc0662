"""The switches of ESDG on one process, in the order in which the paper brings them.

By default they are those of the published form: all of the paper's techniques, none of ours.
"""

from typing import Final

from dgbench.systems.base.system import Technique

TECHNIQUES = (
    Technique(
        "checkpoint",
        "Keep the state at block borders only and run blocks again in the backward pass.",
        exact=True,
        source="ESDG 3.1",
    ),
    Technique(
        "difference",
        "Send a snapshot as what changed since the one before it.",
        exact=True,
        source="ESDG 3.2",
    ),
    Technique(
        "precompute",
        "Aggregate the features of the first layer once, on the host.",
        exact=True,
        source="ESDG 5.5",
    ),
    Technique(
        "fused_scan",
        "Run LSTMs as a compiled scan that records its input only.",
        exact=True,
        source="added: the paper uses torch's LSTM",
        default=False,
        ours=True,
    ),
    Technique(
        "fallback",
        "Send a snapshot plain where its difference would be larger.",
        exact=True,
        source="added: the paper sends differences always",
        default=False,
        ours=True,
    ),
    Technique(
        "asynchronous",
        "Copy the next snapshot while this one is merged.",
        exact=True,
        source="ESDG 3.2 (pinned memory)",
    ),
    Technique(
        "prefetch",
        "Copy the next block's inputs while this block computes.",
        exact=True,
        source="added: the paper copies a block, then computes it",
        default=False,
        ours=True,
    ),
    Technique(
        "lean",
        "In the first pass, bring and compute only what block borders need.",
        exact=True,
        source="added: the paper runs every block twice",
        default=False,
        ours=True,
    ),
    Technique(
        "interleave",
        "Score outputs while the last layer makes them, so that few gradients wait; off, only "
        "where a memory budget needs it.",
        exact=True,
        source="added",
        ours=True,
        default=False,
    ),
    Technique(
        "ship_loops",
        "Send A + I, with entries normalised, instead of adding loops on the device.",
        exact=True,
        source="ESDG 3.2: not said which",
        default=False,
    ),
    Technique(
        "recompute_values",
        "Send no values; the device forms all scales from degrees.",
        exact=True,
        source="added: ablation of ESDG 3.2",
        ours=True,
        default=False,
    ),
    Technique(
        "int32",
        "Send indices of four bytes; the paper's gain needs eight.",
        exact=True,
        source="added: ablation of ESDG 3.2",
        ours=True,
        default=False,
    ),
    Technique(
        "keep_last",
        "Record the last block's forward pass instead of running it again; `lean` does.",
        exact=True,
        source="added: the paper runs every block again",
        ours=True,
        default=False,
    ),
    Technique(
        "paper_layout",
        "Hold matrices on the device as int64 coordinates, not as compressed rows.",
        exact=True,
        source="ESDG 3.1, 3.2 (20 bytes per entry)",
        default=False,
    ),
    Technique(
        "arena",
        "On a CPU, copy into memory apart, so that bytes really move.",
        exact=True,
        source="dgbench: stand-in for a device",
        ours=True,
        default=False,
    ),
)
ADDITIONS: Final = dict.fromkeys(("fused_scan", "fallback", "prefetch", "lean"), True)
"""Switches of what dgbench adds to the published form on one process, on."""
