"""The command that runs flash-attn's own tests (flash_attn_tests.py), on small ones made here;
those of flash-attn are fetched when somebody runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from . import flash_attn_tests

MADE_HERE = """import pytest, torch
from flash_attn import flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.flash_attn_interface import _get_block_size_n
from flash_attn.layers.rotary import apply_rotary_emb
def call(d, alibi):
    q = torch.ones(3, 1, d, device="cuda", dtype=torch.float16)
    starts = torch.tensor([0, 3], dtype=torch.int32, device="cuda")
    window = torch.tensor([1, 1])
    slopes = torch.ones(1) if alibi else None
    o = flash_attn_varlen_func(q, q, q, starts, starts, 3, 3, window_size=window,
                               alibi_slopes=slopes)
    assert (o == 1).all()
@pytest.mark.parametrize("d", list(range(8, 72, 8)))
@pytest.mark.parametrize("seqlen_q,seqlen_k", [(3, 3)])
def test_varlen_passes(seqlen_q, seqlen_k, d): call(d, False)
@pytest.mark.parametrize("dropout_p,d", [(0.0, 64)])
def test_kvcache_fails(dropout_p, d): assert False
"""
REFUSED = """
@pytest.mark.parametrize("alibi,seqlen", ALIBI)
@pytest.mark.parametrize("d", [64])
def test_varlen_refused(alibi, seqlen, d): call(d, alibi)
@pytest.mark.parametrize("alibi,seqlen", ALIBI)
@pytest.mark.parametrize("d", [64])
def test_varlen_not_refused(alibi, seqlen, d): call(d, False)
@pytest.mark.parametrize("d", [264, 320])
def test_varlen_of_large_heads(d): call(d, False)
"""


def test_what_is_said_of_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "einops", torch)  # which the tests made here do not need
    path = tmp_path / "made_here.py"
    path.write_text(MADE_HERE + REFUSED.replace("ALIBI", "[(True, 3)]"))
    assert flash_attn_tests.main(["--tests", str(path), "--cases", "0"]) == 1
    said = capsys.readouterr().out
    assert "8 passed, 3 refused as documented, 0 skipped, 2 failed, 0 were not run" in said
    assert "test_kvcache_fails[0.0-64]: FAILED" in said
    assert "test_varlen_not_refused[64-True-3]: FAILED" in said
    assert flash_attn_tests.main(["--tests", str(path), "--cases", "3", "-k", "passes"]) == 0
    assert "3 passed, 0 refused as documented, 0 skipped, 0 failed" in capsys.readouterr().out


def test_no_tests_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_attn_tests, "URL", "file:///nowhere/{}")
    monkeypatch.setitem(sys.modules, "einops", torch)
    assert flash_attn_tests.main([]) == 4
    with pytest.raises(SystemExit, match="2"):
        flash_attn_tests.main(["--cases", "-1"])
    monkeypatch.setitem(sys.modules, "einops", None)
    assert flash_attn_tests.main([]) == 4
