"""Experiments that are said in forms: words stand in `texts.yaml` of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from dgbench.lab.estimates import EvaluationContext, PaperForms
from dgbench.lab.experiment import FigureSpec
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.grid import Grid
from dgbench.lab.outcomes import Rule, labels, shared_words
from dgbench.lab.quantities import MeasuredQuantity
from dgbench.runtime.documents import load_yaml

MANY = 6
"""Numbers of a headline up to which all are told, beyond them the lowest and the highest."""


class FormExperiment(Grid):
    """A grid with figures and claims in forms.

    Attributes:
        forms: of the paper; its texts give `title`, `question`, `reading` and `own_data`.
        figure_forms: figures, beside those of `charts`. claims: claim -> rule.
        headline: what `answer` tells, in this unit, after the words `told` (`answer` in the texts).
    """

    forms: ClassVar[PaperForms]
    figure_forms: ClassVar[tuple[FigureForm, ...]] = ()
    claims: ClassVar[Mapping[str, Rule]] = {}  # type: ignore[assignment]
    headline: ClassVar[MeasuredQuantity | None] = None
    unit: ClassVar[str] = ""

    told: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Take the words of the experiment; raise KeyError where the texts have none."""
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            return
        cls.paper = cls.forms.paper
        if cls.forms.texts is None:
            return
        texts = _texts(cls.forms.texts)[cls.name]
        cls.title, cls.question = texts["title"], texts["question"]
        cls.reading = " ".join(texts.get("reading", "").split())
        cls.own_data, cls.told = texts.get("own_data", ""), texts.get("answer", "")
        cls.forms = replace(cls.forms, labels={**cls.forms.labels, **texts.get("labels", {})})

    def figures(self) -> list[FigureSpec]:
        return [*self.charts, *(o.figure(self.name, self.forms) for o in self.figure_forms)]

    def answer(self, rows: Sequence[Any]) -> str:
        """The numbers of the headline in a sentence: the lowest and the highest where many."""
        if self.headline is None:
            return ""
        context = EvaluationContext(rows, self.name, self.forms)
        numbers = self.headline.estimates(context)
        words = dict(zip(labels(context, numbers), numbers.values(), strict=True))
        if len(words) > MANY:
            ends = (pick(words, key=lambda name: words[name].value) for pick in (min, max))
            words = {name: words[name] for name in ends}
        told = "; ".join(f"{one.words(self.unit)} {name}" if name != "all" else one.words(self.unit)
                         for name, one in words.items())  # fmt: skip
        shared = shared_words(context, numbers) if len(numbers) > 1 else ""
        where = f" ({shared})" if shared else ""
        return f"{self.told}{where}: {told}." if told else ""


@cache
def _texts(path: Path) -> Mapping[str, Any]:
    return load_yaml(path.read_bytes())
