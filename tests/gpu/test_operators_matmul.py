"""Products of matrices on the GPU, against fp64, in memory whose margins are watched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.matrices.config import configs
from flash_attention.operators.matrices.op import matmul_call
from flash_attention.operators.matrices.persistent_op import PersistentMatmul
from tests.gpu.inputs import guarded
from tests.guarded import margins_ok
from tests.operators.matrices import ALLOWED, CUT, FUNCTIONS, off
from tests.operators.values import DTYPES, ordinary, with_gaps

pytestmark = pytest.mark.gpu
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)


def draw(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return ordinary(shape, dtype, seed).cuda()


@each_dtype
@pytest.mark.parametrize("version", ["direct", "tiled", "pipelined"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (113, 70, 203), (512, 768, 1024), (1000, 999, 4095)])
def test_products(version: str, shape: tuple[int, int, int], dtype: torch.dtype, seed: int) -> None:
    m, n, k = shape
    a, b, out = draw((m, k), dtype, seed), draw((k, n), dtype, seed + 1), guarded((m, n), dtype)
    operators.matmul(a, b, version=version, out=out)
    assert off(out, a, b) <= CUT * ALLOWED["ieee"] and margins_ok(out)
    again = operators.matmul(a, b, version=version)
    assert torch.equal(out, again)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_fp32_on_tensor_cores(precision: str, seed: int) -> None:
    a, b = draw((700, 1000), torch.float32, seed), draw((1000, 400), torch.float32, seed + 1)
    for x in (b, b.T.contiguous().T):
        y = operators.matmul(a, x, precision=precision)
        assert off(y, a, x) <= CUT * ALLOWED[precision]


def test_strides(seed: int) -> None:
    a, b = draw((400, 304), torch.float16, seed), draw((304, 208), torch.float16, seed + 1)
    for x in (a, a.T.contiguous().T, with_gaps(a), a[3:, 1:290]):
        for y in (b[: x.shape[1]], b[: x.shape[1]].T.contiguous().T):
            assert off(operators.matmul(x, y), x, y) <= CUT * ALLOWED["ieee"]


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_epilogues(activation: str, seed: int) -> None:
    a, b = draw((600, 500), torch.bfloat16, seed), draw((500, 3000), torch.bfloat16, seed + 1)
    more: dict[str, Any] = {
        "bias": draw((3000,), torch.bfloat16, seed + 2),
        "residual": draw((600, 3000), torch.bfloat16, seed + 3),
    }
    y = operators.matmul(a, b, activation=activation, **more)
    assert off(y, a, b, activation=activation, **more) <= CUT * ALLOWED["ieee"]


def test_every_configuration(seed: int) -> None:
    a, b = draw((1000, 512), torch.float16, seed), draw((512, 1200), torch.float16, seed + 1)
    newer = torch.cuda.get_device_capability() >= (9, 0)
    for config in configs(1000, 1200, "half", 90 if newer else 80):
        assert off(operators.matmul(a, b, config=config), a, b) <= CUT * ALLOWED["ieee"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_persistent_kernel(dtype: torch.dtype, seed: int) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("for Hopper")
    for m, n, k in ((8, 8, 8), (1000, 1304, 2056), (3000, 5000, 4096)):
        a, b = draw((m, k), dtype, seed), draw((k, n), dtype, seed + 1)
        for x in (a, a.T.contiguous().T):
            for y in (b, b.T.contiguous().T):
                out = guarded((m, n), dtype)
                operators.matmul(x, y, version="persistent", out=out)
                assert off(out, x, y) <= CUT * ALLOWED["ieee"] and margins_ok(out)
    bias = draw((5000,), dtype, seed + 2)
    given: list[dict[str, Any]] = [{"bias": bias, "activation": name} for name in FUNCTIONS]
    for more in given:
        out = guarded((3000, 5000), dtype)
        operators.matmul(a, b, out=out, **more)  # of the default version
        assert off(out, a, b, **more) <= CUT * ALLOWED["ieee"] and margins_ok(out)
        again = operators.matmul(a, b, version="persistent", **more)
        assert torch.equal(again, out), "the default has not the persistent kernel"
    for config in PersistentMatmul().space(matmul_call(a, b, None, None, out, "none", "ieee"), 90):
        y = operators.matmul(a, b, version="persistent", config=config)
        assert off(y, a, b) <= CUT * ALLOWED["ieee"]


def test_tuning_reads_what_it_measured(seed: int) -> None:
    a, b = draw((640, 640), torch.float16, seed), draw((640, 640), torch.float16, seed + 1)
    first = operators.matmul_best_config(a, b)
    second = operators.matmul_best_config(a, b, measure_now=False)
    assert second.cached and second.config == first.config
    assert off(operators.matmul(a, b, version="tuned"), a, b) <= CUT * ALLOWED["ieee"]


def test_gradients_and_torch_compile(seed: int) -> None:
    a, b, bias, residual = (
        draw(shape, torch.float32, seed + i).requires_grad_()
        for i, shape in enumerate(((200, 300), (300, 240), (240,), (200, 240)))
    )

    def block(function: object) -> list[torch.Tensor]:
        y = function(a, b)  # type: ignore[operator]
        return [y, *torch.autograd.grad(y.square().sum(), (a, b, bias, residual))]

    def ours(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return operators.matmul(a, b, bias=bias, activation="silu", residual=residual)

    def theirs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(a @ b + bias) + residual

    wanted = block(theirs)
    for function in (ours, torch.compile(ours, fullgraph=True)):
        torch.testing.assert_close(block(function), wanted, rtol=1e-4, atol=1e-2)
