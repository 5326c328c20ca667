"""The command that runs PyTorch's own tests (pytorch_sdpa.py), on small ones made here; those of
PyTorch are fetched when somebody runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.others import Outcome

from . import pytorch_sdpa

pytestmark = pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"), reason="this torch is too old for it"
)
SDPA = "torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)"
SAME_BITS = f"""
def test_sdp_is_ours_cpu():
    import torch, flash_attention
    q = torch.ones(1, 2, 24, 64).half() * torch.randn(24, 1).half()
    x = q.transpose(1, 2)
    o = flash_attention.flash_attn_func(x, x, x, causal=True).transpose(1, 2)
    assert torch.equal({SDPA}, o)
"""
FAILS_EVERYWHERE = """class TestClass:
    def test_sdp_broken_cpu(self): assert False
"""
FAILS_WITH_OURS = """import sys
def test_sdp_of_pytorch_cpu():
    assert "flash_attention" not in sys.modules
"""


def written(folder: Path, text: str) -> list[str]:
    path = folder / "test_sdp_made_here.py"
    path.write_text(text)
    return ["--tests", str(path), "-k", "cpu"]


def test_a_failure_of_ours_must_be_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = written(tmp_path, SAME_BITS + FAILS_EVERYWHERE + FAILS_WITH_OURS)
    assert pytorch_sdpa.main(arguments) == 1
    said = capsys.readouterr().out
    assert "TestClass::test_sdp_broken_cpu: fails with PyTorch's own, too" in said
    assert "test_sdp_of_pytorch_cpu: NOT LISTED" in said
    assert "1 passed, 0 skipped, 2 failed: 1 with PyTorch's own, too, 0 as listed, and 1" in said
    assert "1 are not listed; 0 were not run" in said


def test_a_listed_failure_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what pytest says of the test above, without running it."""

    def run(*_: object, plugin: str, **__: object) -> Outcome:
        return Outcome(passed=1, failed=("test_sdp_of_pytorch_cpu",) if plugin else ())

    monkeypatch.setattr(pytorch_sdpa, "run", run)
    arguments = written(tmp_path, FAILS_WITH_OURS)
    assert pytorch_sdpa.main(arguments) == 1
    monkeypatch.setattr(pytorch_sdpa, "LISTED", {"of_pytorch": "a refusal"})
    assert pytorch_sdpa.main(arguments) == 0
    assert "test_sdp_of_pytorch_cpu: a refusal" in capsys.readouterr().out


def test_a_crash_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What had ended before it counts, and nothing is compared with PyTorch's own."""
    crash = "\ndef test_z_sdp_crash_cpu(): import os; os.abort()\ndef test_zz_sdp_cpu(): pass\n"
    assert pytorch_sdpa.main(written(tmp_path, SAME_BITS + crash)) == 1
    said = capsys.readouterr().out
    assert "pytest ended with -6: NOT LISTED" in said
    assert "1 passed, 0 skipped, 1 failed" in said and "2 were not run" in said


def test_no_tests_are_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pytorch_sdpa.main([*written(tmp_path, SAME_BITS)[:2], "-k", "nothing"]) == 4
    monkeypatch.setattr(pytorch_sdpa, "URL", "file:///nowhere/{}")
    assert pytorch_sdpa.main([]) == pytorch_sdpa.main(["--fetch", str(tmp_path)]) == 4
