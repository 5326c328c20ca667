"""Calls of the Gluon and Triton kernels that are refused before a launch, and with what words."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from flash_attention import gluon
from flash_attention import triton as plain
from flash_attention.gluon.config import default_config, problems
from flash_attention.triton_kit import versions

SHAPE = (2, 8, 4, 64)


def tensor(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def wide(step: int) -> torch.Tensor:
    """Rows that are `step` elements apart."""
    return torch.zeros(2 * 8 * 4 * step, dtype=torch.float16).as_strided(
        SHAPE, (8 * 4 * step, 4 * step, step, 1)
    )


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": None}, TypeError, "q is None: expected a torch.Tensor"),
    ({"q": tensor((8, 4, 64))}, ValueError, "q has shape .* expected 4 dimensions"),
    ({"k": tensor(dtype=torch.bfloat16)}, ValueError, "k has dtype torch.bfloat16, but q has"),
    ({"v": tensor((2, 9, 4, 64))}, ValueError, "k has shape .* and v .*: they must be equal"),
    ({"k": tensor((2, 8, 3, 64)), "v": tensor((2, 8, 3, 64))}, ValueError, "multiple of"),
    ({"q": tensor((2, 0, 4, 64))}, ValueError, "empty tensors are not supported"),
    ({"q": wide(65)}, ValueError, "must be multiples of 8"),
    ({"q": tensor((2, 8, 64, 64)).transpose(2, 3)[:, :, :4]}, ValueError, "must be contiguous"),
    ({"causal": 1}, TypeError, "causal is an int: expected True or False"),
    ({"softmax_scale": float("nan")}, ValueError, "must be finite in fp32"),
    ({"softmax_scale": "x"}, TypeError, "softmax_scale is a str"),
    ({}, ValueError, "q is on cpu: Triton kernels run on CUDA devices only"),
]


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=lambda x: str(x)[:30])
def test_bad_tensors_are_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    given: dict[str, Any] = {"q": tensor(), "k": tensor(), "v": tensor(), **change}
    with pytest.raises(kind, match=words):
        plain.forward(given.pop("q"), given.pop("k"), given.pop("v"), **given)


def test_freed_memory_is_refused() -> None:
    k = tensor()
    k.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="k needs 8192 bytes of memory, and its storage has 0"):
        plain.forward(tensor(), k, tensor())


def test_head_dimensions_and_dtypes() -> None:
    odd = tensor((2, 8, 4, 48))
    with pytest.raises(ValueError, match="head dimension 48: allowed are 64, 128"):
        gluon.forward(odd, odd, odd, ping_pong=True)
    with pytest.raises(ValueError, match="head dimension 48: allowed are 32, 64, 128, 256"):
        plain.forward(odd, odd, odd)
    single = tensor(dtype=torch.float32)
    with pytest.raises(ValueError, match=r"torch.float32: allowed are torch.float16 and"):
        plain.forward(single, single, single)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"NUM_MMA_GROUPS": 4}, "NUM_MMA_GROUPS 4: allowed are 1, 2 and 3"),
        ({"NUM_MMA_WARPS": 6}, "each needs 4 or 8 warps"),
        ({"BLOCK_M": 96}, "each group needs 64, 128 or 256 rows"),
        ({"BLOCK_N": 80}, "BLOCK_N 80: allowed are"),
        (
            {"BLOCK_M": 192, "BLOCK_N": 256, "NUM_MMA_WARPS": 12, "NUM_MMA_GROUPS": 3},
            "BLOCK_N 256 with 12 warps",
        ),
        ({"NUM_BUFFERS": 1}, "NUM_BUFFERS 1: allowed are 2 to 8"),
        ({"OVERLAP_FENCE": "bar"}, "OVERLAP_FENCE 'bar': allowed are none, pmevent, membar, warp"),
        ({"NUM_BUFFERS": 4}, "bytes of shared memory: at most 232448"),
        ({"BLOCK_M": 256}, "OPTIMISTIC with 128 rows in a group of 4 warps"),
    ],
)
def test_bad_gluon_configurations(change: dict[str, Any], words: str) -> None:
    config = replace(default_config(True, 128), **change)
    assert any(words in reason for reason in problems(config, 128, ping_pong=True))


def test_the_spaces_can_be_built_and_have_no_doubles() -> None:
    for d_head in (64, 128):
        for ping_pong in (False, True):
            space = gluon.configs(ping_pong, d_head)
            assert len(space) == len(set(space)) >= 6
            assert default_config(ping_pong, d_head) in space
            assert not any(problems(config, d_head, ping_pong) for config in space)
        assert plain.configs(d_head)
    with pytest.raises(ValueError, match="head dimension 96: allowed are 64 and 128"):
        gluon.configs(True, 96)
    with pytest.raises(ValueError, match="head dimension 96: allowed are 32, 64, 128, 256"):
        plain.configs(96)


def test_another_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    versions.require_triton()
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    with pytest.raises(versions.TritonVersionError, match=r"triton 3.5.1 is installed: .*3.6,"):
        versions.require_triton()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(versions.TritonVersionError, match=r"not installed; pip install"):
        versions.require_triton()


def test_importing_the_packages_does_not_import_triton() -> None:
    code = (
        "import sys, flash_attention, flash_attention.gluon, flash_attention.triton; "
        "import flash_attention.triton_kit.offline; sys.exit('triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
