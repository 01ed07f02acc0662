"""Drawing style of every figure: the one module that kinds import, made of one file per subject.

Kinds write `style.dot`, `style.log_axis` and so on, and need not know where each part lives.
"""

from __future__ import annotations

from dgbench.harness.claims.shown import digits
from dgbench.harness.figures.canvas import (
    BODY,
    CELL,
    FOOT,
    FULL,
    HALF,
    HATCH_EDGE,
    NOTE,
    PROJECTED,
    PROJECTED_DASHES,
    ROW,
    SMALL,
    Context,
    new_figure,
    place,
    styled,
    write_at,
)
from dgbench.harness.figures.files import (
    save,
)
from dgbench.harness.figures.footer import (
    draw_footer,
    footer_height,
    footer_lines,
)
from dgbench.harness.figures.legends import (
    failed_handle,
    legend,
    legend_columns,
    legend_height,
    mark_handle,
    noise_handle,
    paper_handle,
    projected_handle,
)
from dgbench.harness.figures.marks import (
    dot,
    hatched,
    interval,
    paper_mark,
    paper_tick,
    stem,
    tint,
)
from dgbench.harness.figures.names import (
    end_labels,
)
from dgbench.harness.figures.noise import (
    noise_band,
    same,
    side,
)
from dgbench.harness.figures.palette import GRID, INK, NOISE, RED, SECONDARY, STATUS_WORDS
from dgbench.harness.figures.scales import (
    ends,
    log_axis,
    log_limits,
    ratio_ticks,
    tick_text,
)
from dgbench.harness.figures.words import (
    WIDE,
    factor,
    failure_words,
    fit_labels,
    label_room,
    seconds_text,
    stamp_width,
    text_width,
    with_interval,
    wrap_label,
)

__all__ = [
    "BODY",
    "CELL",
    "FOOT",
    "FULL",
    "GRID",
    "HALF",
    "HATCH_EDGE",
    "INK",
    "NOISE",
    "NOTE",
    "PROJECTED",
    "PROJECTED_DASHES",
    "RED",
    "ROW",
    "SECONDARY",
    "SMALL",
    "STATUS_WORDS",
    "WIDE",
    "Context",
    "digits",
    "dot",
    "draw_footer",
    "end_labels",
    "ends",
    "factor",
    "failed_handle",
    "failure_words",
    "fit_labels",
    "footer_height",
    "footer_lines",
    "hatched",
    "interval",
    "label_room",
    "legend",
    "legend_columns",
    "legend_height",
    "log_axis",
    "log_limits",
    "mark_handle",
    "new_figure",
    "noise_band",
    "noise_handle",
    "paper_handle",
    "paper_mark",
    "paper_tick",
    "place",
    "projected_handle",
    "ratio_ticks",
    "same",
    "save",
    "seconds_text",
    "side",
    "stamp_width",
    "stem",
    "styled",
    "text_width",
    "tick_text",
    "tint",
    "with_interval",
    "wrap_label",
    "write_at",
]
