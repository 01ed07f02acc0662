"""Forms of figures: a quantity, and where each of its numbers is drawn.

    Sweep("epochs", "Epochs by their place in training", COST, panel="{model}", series="{setting}",
          x="{dataset}", ylabel="over the median epoch")

A field of a mark is words with dimensions in braces, or the name of one dimension, whose value is
taken as it is. Intervals, twins, row ids, and gaps for what did not run follow by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from dgbench.lab.charts import TWIN, failed, marked
from dgbench.lab.estimates import Coords, Estimate, EvaluationContext, PaperForms
from dgbench.lab.evidence import uses_twin
from dgbench.lab.experiment import FigureSpec
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.lab.table import Entry, Table

Mark = dict[str, Any]
More = Callable[[EvaluationContext, Mapping[str, Any], Estimate], Mapping[str, Any]]
"""(context, dimensions, number) -> further fields of its mark."""


@dataclass(frozen=True)
class FigureForm:
    """A figure of one quantity, or of several that share a form.

    Attributes:
        kind, name, title, options, contenders: see `FigureSpec`.
        y: a quantity; or several by words, which stand in the dimension `of`.
        fields: of a mark. value: name of the field of the number.
        scale: factor from the metric's unit to the axis'. more: further fields.
        printed: the paper's numbers beside them, see `MeasuredQuantity.printed`.
        gaps: fields, and their forms, in which one gap stands for all marks where none of them is
            drawn; None for no gaps. without: words of a gap that no failed row explains.
    """

    kind: str
    name: str
    title: str
    y: MeasuredQuantity | Mapping[str, MeasuredQuantity]
    fields: Mapping[str, str]
    value: str = "y"
    scale: float = 1.0
    more: More | None = None
    printed: MeasuredQuantity | None = None
    gaps: Mapping[str, Any] | None = None
    without: str = "skipped: not run"
    options: Mapping[str, Any] = field(default_factory=dict)
    contenders: Mapping[str, Any] = field(default_factory=dict)

    def figure(self, experiment: str, forms: PaperForms) -> FigureSpec:
        """The figure as the harness draws it."""
        return FigureSpec(
            self.kind, self.name, self.title,
            lambda rows: list(self.marks(EvaluationContext(rows, experiment, forms))),
            self.options, self.contenders,
        )  # fmt: skip

    def marks(self, context: EvaluationContext) -> Iterator[Mark]:
        """A mark for each number; a gap for each coordinate that rows plan and that has none."""
        every = self.y if isinstance(self.y, Mapping) else {"": self.y}
        drawn: set[str] = set()
        lacking: list[tuple[Mark, Sequence[Any]]] = []
        for words, quantity in every.items():
            of = {"of": words} if words else {}
            numbers = quantity.estimates(context)
            for coords, one in numbers.items():
                dims = {**dict(coords), **of}
                fields = self._fields(self.fields, context, dims, one.rows)
                drawn |= {self._joint(fields, context, dims), str(fields)}
                more = self.more(context, dims, one) if self.more else {}
                yield {**fields, **self._number(quantity, one), **more}
            planned = {} if self.gaps is None or quantity.is_printed else quantity.planned(context)
            lacking += [
                ({**dict(coords), **of}, rows)
                for coords, rows in planned.items() if not _drawn(coords, numbers)
            ]  # fmt: skip
        if self.printed is not None:
            for coords, one in self.printed.estimates(context).items():
                fields = self._fields(self.fields, context, dict(coords), one.rows)
                yield {**fields, **self._number(self.printed, one), "series": "printed"}
        gaps: dict[str, tuple[Mark, list[Any]]] = {}
        for dims, rows in lacking:
            fields = self._fields(self.fields, context, dims, rows)
            if str(fields) in drawn:  # of another row
                continue
            if self._joint(fields, context, dims) not in drawn:
                fields |= self._fields(self.gaps or {}, context, dims, rows)
            gap = {k: v for k, v in fields.items() if v is not None}
            gaps.setdefault(str(gap), (gap, []))[1].extend(rows)
        for gap, rows in gaps.values():
            bad = [row for row in rows if row.status != "ok"]
            if self.kind == "speedup":
                gap["failed_system"] = bad[0].params.get("system") if bad else gap["system"]
            yield {
                **gap, "failed": failed(bad[0]) if bad else self.without,
                "row_ids": list(dict.fromkeys(row.id for row in bad)),
            }  # fmt: skip

    def _joint(self, fields: Mark, context: EvaluationContext, dims: Mapping[str, Any]) -> str:
        """Fields of a mark with those that one gap for all of them has in their place; apart from
        those of a mark that has the gap's own."""
        return "joint " + str({**fields, **self._fields(self.gaps or {}, context, dims, ())})

    def _number(self, quantity: MeasuredQuantity, one: Estimate) -> Mark:
        mark: Mark = {self.value: self.scale * one.value, "row_ids": [row.id for row in one.rows]}
        if one.kind == "printed":
            return {**mark, "paper": True}
        if one.kind in ("ratio", "seeds"):
            ends = (None if end is None else self.scale * end for end in (one.low, one.high))
            mark["low"], mark["high"] = ends
        if one.ratio is not None and one.ratio.deviation is not None:
            mark["deviation"] = one.ratio.deviation
        if self.kind not in ("sweep", "paper_vs_measured"):
            mark["twin"] = uses_twin(one.rows)
        if self.kind == "speedup" and one.ratio is not None:
            mark["n"] = one.ratio.n
        if self.kind == "sweep" and quantity.counted:
            mark["counted"] = True
        return mark

    def _fields(
        self, fields: Mapping[str, str], context: EvaluationContext, dims: Mapping[str, Any],
        rows: Sequence[Any],
    ) -> Mark:  # fmt: skip
        mark: Mark = {}
        twin = self.kind == "sweep" and uses_twin(rows)
        for name, form in fields.items():
            mark[name] = _filled(form, context, dims, twin)
            twin = twin and TWIN not in str(mark[name])
        return mark


def Sweep(
    name: str, title: str, y: Any, *, x: str, series: str, panel: str = "", scale: float = 1.0,
    more: More | None = None, gaps: Mapping[str, Any] | None = None, without: str = "",
    printed: MeasuredQuantity | None = None, **options: Any,
) -> FigureForm:  # fmt: skip
    """Lines over a size, or dots over categories.

    Args:
        gaps, without, more, printed: see `FigureForm`.
    """
    fields = {"panel": panel, "series": series, "x": x} if panel else {"series": series, "x": x}
    return FigureForm("sweep", name, title, y, fields, "y", scale, more, printed,
                      gaps or {}, without or "skipped: not run", options)  # fmt: skip


def SpeedupBars(
    name: str, title: str, y: Any, *, row: str, system: str, baseline: str, panel: str = "",
    more: More | None = None, gaps: Mapping[str, Any] | None = None,
    contenders: Mapping[str, Any] | None = None, without: str = "",
    **options: Any,
) -> FigureForm:  # fmt: skip
    """Dots of how many times faster a system is than a baseline, with intervals."""
    fields = {"panel": panel} if panel else {}
    fields |= {"row": row, "system": system, "baseline": baseline}
    return FigureForm("speedup", name, title, y, fields, "value", more=more, gaps=gaps or {},
                      without=without or "skipped: not run", options=options,
                      contenders=contenders or {})  # fmt: skip


def StackedTime(
    name: str, title: str, y: Any, *, row: str, system: str, panel: str = "",
    phase: str = "phase", more: More | None = None, without: str = "", **options: Any,
) -> FigureForm:  # fmt: skip
    """Stacked parts of a time, a gap for each bar; `more` gives the total of each."""
    fields = {"row": row, "system": system, "panel": panel, "phase": phase}
    return FigureForm("time_split", name, title, y, fields, "seconds", more=more,
                      gaps={"phase": None}, without=without or "skipped: not run",
                      options=options)  # fmt: skip


def CopyShare(
    name: str, title: str, rates: MeasuredQuantity, *, row: str, system: str
) -> FigureForm:
    """Rates of memory traffic against the copy bandwidth that the same run measured, if it did."""
    return FigureForm(
        "limit_share", name, title, rates.keep(_beside_copies).pooled("median"),
        {"row": row, "system": system}, "value", 1e-9,
        more=lambda context, dims, one: {
            "limit": _copy_bandwidth(context) / 1e9, "limit_name": "copy bandwidth",
            "unit": "GB/s",
        },
    )  # fmt: skip


def _copy_bandwidth(context: EvaluationContext) -> float:
    """Bytes a second that this run's machine copies; 0 where it was not measured."""
    copies = Table.of(context.rows, paper="-", experiment="machine").where("bandwidth")
    limits = copies.where(place="device") or copies.where(place="host", using="all")
    return limits[-1].value if limits else 0.0


def _beside_copies(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    return entries if _copy_bandwidth(context) else []


def _filled(
    form: Any, context: EvaluationContext, dims: Mapping[str, Any], twin: bool = False
) -> Any:
    """A field's words; None where it is empty. `twin`: a dataset's says that it is one."""
    if not form or not isinstance(form, str):
        return form or None
    if form in dims:
        return dims[form]
    filled = ""
    for text, dim, _, _ in Formatter().parse(form):
        filled += text
        if dim is not None:
            word = context.forms.label(dim, dims[dim]) if dim in dims else ""
            filled += marked(word, twin) if dim == "dataset" else word
    return filled


def _drawn(coords: Coords, numbers: Mapping[Coords, Any]) -> bool:
    """Return True if a number stands at these coordinates, which may name fewer dimensions."""
    wanted = dict(coords)
    return any(wanted.items() <= dict(one).items() for one in numbers)
