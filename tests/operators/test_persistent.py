"""The persistent product of matrices for Hopper: its sm_90a code in the emulator, races on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton

from flash_attention import operators
from flash_attention.operators.matrices import persistent
from flash_attention.operators.matrices.op import matmul_call
from flash_attention.operators.matrices.persistent_op import PersistentConfig, PersistentMatmul
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.versions import minor_of

from .matrices import ALLOWED, off
from .planting import found, is_put_back, planted
from .test_matmul import draw
from .values import ordinary, shifted


@pytest.mark.parametrize("a_rows", [True, False])
@pytest.mark.parametrize("b_rows", [True, False])
def test_products(a_rows: bool, b_rows: bool, seed: int) -> None:
    """More tiles than the emulated GPU has multiprocessors, and more steps than buffers."""
    dtype = torch.float16 if a_rows else torch.bfloat16
    for m, n, k in ((520, 520, 328), (8, 8, 8)):
        a = draw((m, k), dtype, seed) if a_rows else draw((k, m), dtype, seed).T
        b = draw((k, n), dtype, seed + 1) if b_rows else draw((n, k), dtype, seed + 1).T
        y = operators.matmul(a, b, version="persistent")
        assert off(y, a, b) <= ALLOWED["ieee"]


def test_every_configuration(seed: int) -> None:
    a, b = draw((264, 264), torch.float16, seed), draw((264, 264), torch.float16, seed + 1)
    op = PersistentMatmul()
    for config in op.space(matmul_call(a, b, None, None, a, "none", "ieee"), 90):
        y = operators.matmul(a, b, version="persistent", config=config)
        assert off(y, a, b) <= ALLOWED["ieee"]
        compiled = emulated.compiled(op, config, matmul_call(a, b, None, None, a, "none", "ieee"))
        assert compiled.spill_bytes == 0 and not compiled.warnings
        assert compiled.shared_bytes <= config.shared_bytes


def test_without_steps() -> None:
    empty = torch.zeros(8, 0, dtype=torch.float16)
    assert torch.equal(operators.matmul(empty, empty.T, version="persistent"), torch.zeros(8, 8))


X = torch.zeros(8, 16, dtype=torch.float16)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"a": X.float(), "b": X.T.float()}, "a has dtype torch.float32: the persistent kernel takes"),
    ({"a": X[:, :9].contiguous(), "b": X.T[:9]}, "a has rows .or columns. 9 elements apart"),
    ({"a": shifted(X)}, "a, b or out does not begin at a multiple of 16 bytes"),
    ({"activation": "relu"}, "version is 'persistent': it takes no bias, activation"),
    ({"config": PersistentConfig(BLOCK_N=64)}, "BLOCK_N 64: allowed are 128, 256"),
    ({"config": PersistentConfig(BLOCK_M=256)}, "tiles of 256 x 256: a thread has no"),
    ({"config": PersistentConfig(BUFFERS=8)}, "427008 bytes of shared memory: at most"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words[:25] for _, words in BAD])
def test_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        operators.matmul(**{"a": X, "b": X.T, "version": "persistent", **change})


PLANTED = [
    ("((step // s.count) & 1) ^ 1", "(step // s.count) & 1"),
    ("mbarrier.wait(s.full.index(place), ((step + i) // s.count) & 1)", "pass"),
    ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
    ("(step + i - 1) % s.count", "(step + i) % s.count"),
    ("warpgroup_mma_wait(0, deps=[acc])\n    mb", "acc\n    mb"),
    ("tma.store_wait(0)  # what", "pass  # what"),
    ("column + i * HALF", "column"),
    ("[k, column]", "[column, k]"),
    ("s.groups * a_desc.block_type.nbytes + ", ""),
    ("s.empty.index(place), count=G", "s.empty.index(place), count=1"),
    ("row + g * s.ROWS, k", "row, k"),
]  # fmt: skip
if minor_of(triton.__version__) < (3, 9):  # later releases put the fence there themselves
    PLANTED.append(("            fence_async_shared()\n", ""))


@pytest.mark.parametrize(("old", "new"), [("", ""), *PLANTED])
def test_planted_bugs_are_found(old: str, new: str, seed: int) -> None:
    a, b = draw((264, 200), torch.float16, seed), ordinary((200, 264), torch.float16, seed + 1)

    def right(op: PersistentMatmul) -> bool:
        out = torch.full((264, 264), float("nan"), dtype=torch.float16)
        call = matmul_call(a, b, None, None, out, "none", "ieee")
        emulated.run(op, PersistentConfig(128, 128, 64, 2, 3), call, (a, b, out))
        return off(out, a, b) <= 8

    mutant = planted(PersistentMatmul(), persistent, old, new)
    assert found(lambda: right(mutant)) is (bool(old) and not is_put_back(old))
