"""The two regimes without a GPU: their problems, and how the command ends."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from flash_helpers.bench import regimes
from flash_helpers.dtypes import DType


def test_problems() -> None:
    options = Namespace(
        d_heads=[64], seq_lens=[512, 16384], dtype=DType.BF16, seed=1, mask="both", batch=None,
        heads=16, kv_heads=None,
    )  # fmt: skip
    found = [(w.causal, w.seq_len, w.batch) for w in regimes.workloads(options)]
    assert found == [(False, 512, 16), (False, 16384, 4), (True, 512, 16), (True, 16384, 4)]
    options.mask, options.batch, options.heads, options.kv_heads = "causal", 1, 64, 8
    found = [(w.causal, w.seq_len, w.batch) for w in regimes.workloads(options)]
    assert found == [(True, 512, 1), (True, 16384, 1)]
    assert {(w.n_heads, w.n_kv_heads) for w in regimes.workloads(options)} == {(64, 8)}


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "rows.jsonl"
    assert regimes.main(["--out", str(out)]) == 4
    assert not out.exists()


@pytest.mark.parametrize(
    "wrong",
    ["--seq_lens=0", "--dtype=fp8", "--rounds=0", "--seconds=-1", "--seq_lens=700", "--kv_heads=3"],
)
def test_usage(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        regimes.main([wrong, "--out", str(tmp_path / "rows.jsonl")])
    assert caught.value.code == 2
