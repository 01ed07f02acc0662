"""Attention contenders of DGC: each against float64, gaps with their reasons."""

from __future__ import annotations

import pytest
import torch

from dgbench.systems.dgc.experiments import attention

CASE = attention.SequenceCase("tiny", 40, 3, 9, 2, 8)


@pytest.mark.parametrize("name", [n for n in attention.CONTENDERS if n != attention.VARLEN])
def test_contenders_attend_within_sequences(name):
    packed = attention.draw_steps(CASE)
    assert packed.lengths.unique().numel() > 3
    contender = attention.CONTENDERS[name](packed)
    worst, checks = attention.compared(contender, packed, name)
    assert worst < 1e-5
    assert all(check.passed for check in checks)


def test_varlen_gets_offsets_of_the_sequences(monkeypatch):
    """Its arguments, by a stand-in that attends as documented; bfloat16 has its own tolerance."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")

    def slow(q, k, v, begins_q, begins_k, longest_q, longest_k):
        assert q.dtype == torch.bfloat16
        assert begins_q.dtype == torch.int32
        assert longest_q == longest_k == int(begins_q.diff().max())
        sizes = begins_q.diff().tolist()
        parts = zip(*(t.transpose(0, 1).split(sizes, dim=1) for t in (q, k, v)), strict=True)
        made = [torch.nn.functional.scaled_dot_product_attention(*part) for part in parts]
        return torch.cat(made, dim=1).transpose(0, 1)

    monkeypatch.setattr(varlen, "varlen_attn", slow)
    packed = attention.draw_steps(CASE)
    on_device = type("Lengths", (), {"device": torch.device("cuda")})
    offsets = packed.offsets
    shown = type(
        "Shown", (), {"lengths": on_device, "offsets": offsets, "steps": packed.steps, "case": CASE}
    )
    on_device.max = packed.lengths.max
    contender = attention.varlen_rows(shown)
    worst, checks = attention.compared(contender, packed, attention.VARLEN)
    assert attention.TOLERANCE < worst < 2 * attention.HALF_TOLERANCE
    assert all(check.passed and check.gap < worst for check in checks)
