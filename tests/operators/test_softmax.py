"""softmax and log_softmax in the emulator, races on, against fp64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.row_softmax import kernels
from flash_attention.operators.row_softmax.calls import BACKWARD, FORWARD
from flash_attention.operators.rows.op import RowConfig, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import excess, softmax_excess
from .planting import found, planted
from .values import DTYPES, every_pair, ordinary, shifted, with_gaps

LOOPED = RowConfig(1, 256, False, 2)
FUNCTIONS = {"softmax": operators.softmax, "log_softmax": operators.log_softmax}
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def off(name: str, found: torch.Tensor, x: torch.Tensor, dim: int = -1) -> float:
    return softmax_excess(found, x, name == "log_softmax", dim)


@every_pair(
    name={name: name for name in FUNCTIONS},
    dtype=DTYPES,
    shape={str(x): x for x in [(5, 200), (33, 3), (3, 1), (2, 1000), (1, 9000)]},
)
def test_rows_in_registers(
    name: str, dtype: torch.dtype, shape: tuple[int, int], seed: int
) -> None:
    x = ordinary(shape, dtype, seed) * 5
    assert off(name, FUNCTIONS[name](x), x) <= 4


@every_pair(
    name={name: name for name in FUNCTIONS},
    algorithm={name: name for name in ("online", "two_pass")},
    dtype={name: DTYPES[name] for name in ("fp32", "bf16")},
)
def test_rows_in_a_loop(name: str, algorithm: str, dtype: torch.dtype, seed: int) -> None:
    for columns in (1, 255, 256, 1003):
        x = ordinary((3, columns), dtype, seed) * 5
        x[1] += torch.linspace(-30, 30, columns).to(dtype)  # the maximum rises on the way
        y = FUNCTIONS[name](x, algorithm=algorithm, config=LOOPED)
        assert off(name, y, x) <= 4


def test_few_short_rows_go_to_many_programs(seed: int) -> None:
    """Else 1024 rows of 64 would keep half of a GPU waiting; of many rows each program has
    several."""
    assert [FORWARD.config_for(rows, 64).ROWS for rows in (200, 1024, 10**6)] == [1, 4, 16]
    assert FORWARD.config_for(1024, 64).num_warps == 1
    x = ordinary((33, 50), torch.float32, seed)
    for rows in (1, 4, 16):
        assert off("softmax", operators.softmax(x, config=RowConfig(rows, 64, True, 1)), x) <= 4


@each_function
def test_a_row_too_long_for_registers(name: str, seed: int) -> None:
    x = ordinary((1, 40_001), torch.float16, seed)
    assert x.shape[1] > FORWARD.most_whole
    assert off(name, FUNCTIONS[name](x), x) <= 4


@pytest.mark.parametrize("config", [None, LOOPED], ids=["registers", "loop"])
def test_large_numbers_and_those_that_are_none(config: RowConfig | None) -> None:
    low, high, nan = -float("inf"), float("inf"), float("nan")
    x = torch.tensor(
        [[1e4, 1e4, -1e4], [-1e4, -1e4, -1e4], [low, low, 0.0], [3e38, -3e38, 3e38],
         [low, low, low], [nan, 0.0, 0.0], [high, 0.0, 0.0], [-1e30, low, -1e30]]
    )  # fmt: skip
    for name, function in FUNCTIONS.items():
        assert off(name, function(x, config=config), x) <= 4


@each_function
def test_other_dimensions_and_strides(name: str, seed: int) -> None:
    function = FUNCTIONS[name]
    x = ordinary((3, 20, 5), torch.float32, seed)
    for dim in (0, 1, -1):
        assert off(name, function(x, dim), x, dim) <= 4
    for view in (with_gaps(x), x.transpose(0, 2), shifted(x), x[:, 3:17], x[0, 0]):
        assert off(name, function(view), view) <= 4
    assert function(torch.zeros(3, 0)).shape == (3, 0)
    assert function(torch.zeros(0, 3), 0).shape == (0, 3)


@each_function
@pytest.mark.parametrize("columns", [200, 33_000], ids=["registers", "loop"])
def test_gradients(name: str, columns: int, seed: int) -> None:
    x = ordinary((2, columns), torch.float32, seed).requires_grad_()
    grad = ordinary((2, columns), torch.float32, seed + 1)
    exact = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(getattr(torch, name)(exact, -1), exact, grad.double())
    for algorithm in ("online", "two_pass"):
        (got,) = torch.autograd.grad(FUNCTIONS[name](x, algorithm=algorithm), x, grad)
        assert excess(got, wanted, wanted.abs().max()) <= 8


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": None}, TypeError, "x is None: expected a torch.Tensor"),
    ({"dim": 2}, ValueError, "dim is 2: x has 2 dimensions"),
    ({"dim": 1.0}, TypeError, "dim is a float: expected an integer"),
    ({"algorithm": "three_pass"}, ValueError, "algorithm is 'three_pass': allowed are online, two"),
    ({"config": RowConfig(BLOCK=4)}, ValueError, "BLOCK 4: rows of 8 need more, or WHOLE False"),
    ({"config": RowConfig(BLOCK=9, ROWS=3)}, ValueError, "ROWS 3: allowed are powers of two; BLO"),
]


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=[words[:20] for *_, words in BAD])
def test_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        operators.softmax(**{"x": torch.zeros(3, 8), **change})


PLANTED = [
    ("shifted = v - tl.max(v, 1, keep_dims=True)", "shifted = v", True),
    ('mask=inside, other=-float("inf")', "mask=inside, other=0.0", True),
    ("y, mask=inside)", "y)", True),
    ("total * tl.exp(top - finite(higher)) +", "total +", False),
    ("tl.exp(top - most)", "tl.exp(finite(top) - most)", False),
    ("range(0, columns, BLOCK)", "range(0, columns - BLOCK, BLOCK)", False),
    ("row * out_row", "row * x_row", True),
]


@pytest.mark.parametrize(("old", "new", "whole"), PLANTED)
def test_planted_bugs_are_found(old: str, new: str, whole: bool, seed: int) -> None:
    x = torch.cat([ordinary((4, 50), torch.float32, seed) * 10 - 200] * 2, 1)[:, :50]
    x[1, ::2] = -float("inf")
    config = RowConfig(2, 64, True, 1) if whole else RowConfig(1, 16, False, 1)

    def right(op: Any) -> bool:
        out = torch.full((4, 50), float("nan"))
        call = row_call(4, 50, (x, out), (x, out), LOG=False, ONLINE=True)
        emulated.run(op, config, call, (x, out))
        return off("softmax", out, x) <= 4

    assert right(FORWARD)
    assert found(lambda: right(planted(FORWARD, kernels, old, new)))


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("columns", [1024, 16_384, 32_768, 65_536])
def test_no_spills_and_loads_of_16_bytes(columns: int, architecture: int) -> None:
    x = torch.empty(2, columns, dtype=torch.float16)
    for op, tensors in ((FORWARD, (x, x)), (BACKWARD, (x,) * 3)):
        words: dict[str, Any] = {"ONLINE": True} if op is FORWARD else {}
        call = row_call(2, columns, tensors, tensors, LOG=False, **words)
        compiled = compile_op(op, op.default(call), call, architecture=architecture)
        assert compiled.spill_bytes == 0
        assert re.search(r"ld\.global\S*\.v4\.b32", compiled.ptx)
        assert "st.global.v4.b32" in compiled.ptx
