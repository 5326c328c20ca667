"""flash_attn_func on the GPU with head dimensions that no dense kernel has, and values narrower
than keys: by copies for dense kernels and by those that serve, whichever the GPU prefers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from flash_attention import attention, autograd
from flash_attention.serving.gradients import smallest
from flash_helpers.base.dtypes import DType
from flash_helpers.check.tolerance import bitwise_equal
from flash_helpers.kernels.problem import AttentionProblem
from tests.head_calls import attend, check, check_gradients, draw

pytestmark = pytest.mark.gpu

FP16, BF16 = torch.float16, torch.bfloat16
KINDS = [(16, 16), (36, 36), (40, 40), (72, 72), (80, 80), (112, 112), (128, 50), (160, 160),
         (192, 128), (200, 200), (256, 130)]  # fmt: skip
LENGTHS = [(203, 339), (339, 203), (1, 1000), (16, 1000), (40, 4097)]
each_kind = pytest.mark.parametrize(("d", "d_v"), KINDS)


@pytest.fixture(params=["preferred", "served"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the GPU prefers; and the kernels that serve, of gradients as well."""
    if request.param == "preferred":
        return

    def chosen(dtype: Any, q: Any, k: Any, causal: Any, deterministic: Any, device: Any) -> Any:
        problem = AttentionProblem(
            DType.from_torch_dtype(dtype), q[0], q[1], k[1], q[2], k[2], q[3],
            causal=causal, gradients=True, deterministic=deterministic,
        )  # fmt: skip
        return smallest(problem, device)

    monkeypatch.setattr(attention, "dense_width", lambda *_: None)
    monkeypatch.setattr(autograd, "chosen", chosen)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("lengths", LENGTHS)
@each_kind
def test_outputs(d: int, d_v: int, lengths: tuple[int, int]) -> None:
    """Repeated calls, too, which are launched as the first was."""
    for dtype in (FP16, BF16):
        for causal in (False, True):
            qkv = draw(d, d_v, dtype, lengths, "cuda")
            first = check(qkv, causal=causal)
            assert bitwise_equal(attend(*qkv, causal=causal), first)
    check(draw(d, d_v, lengths=lengths, device="cuda"), scale=-0.3)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("deterministic", [False, True])
@each_kind
def test_gradients(d: int, d_v: int, deterministic: bool) -> None:
    options = {"deterministic": deterministic}
    for dtype in (FP16, BF16):
        qkv = draw(d, d_v, dtype, (203, 339), "cuda")
        check_gradients(qkv, causal=True, with_d_lse=True, **options)
        check_gradients(qkv, softmax_scale=0.3, **options)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv]
    check_gradients((heads_first[0], heads_first[1], heads_first[2]), **options)


@pytest.mark.parametrize("layout", ["heads first", "packed", "strided last", "misaligned"])
@pytest.mark.parametrize("d", [36, 80])
def test_layouts(d: int, layout: str) -> None:
    x = torch.randn(3 * 2 * 203 * 4 * d + 1, device="cuda", dtype=FP16)
    base = x[1:] if layout == "misaligned" else x[:-1]
    makers: dict[str, Callable[[], torch.Tensor]] = {
        "heads first": lambda: base.view(3, 2, 4, 203, d).transpose(2, 3),
        "packed": lambda: base.view(2, 203, 3, 4, d).movedim(2, 0),
        "strided last": lambda: base.view(3, 2, 4, d, 203).permute(0, 1, 4, 2, 3),
        "misaligned": lambda: base.view(3, 2, 203, 4, d),
    }
    q, k, v = makers[layout]().unbind(0)
    check((q, k, v), causal=True)
    check_gradients((q, k, v))


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(("d", "d_v"), [(36, 36), (80, 80), (192, 128)])
def test_a_graph_replays_with_new_inputs(d: int, d_v: int, gradients: bool) -> None:
    qkv = draw(d, d_v, lengths=(203, 339), device="cuda")
    leaves = [x.requires_grad_(gradients) for x in qkv]

    def call() -> tuple[torch.Tensor, ...]:
        o = attend(*leaves, causal=True, deterministic=True)
        return (o, *torch.autograd.grad(o.sum(), leaves)) if gradients else (o,)

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    for _ in range(2):
        with torch.no_grad():
            for x in leaves:
                x.copy_(torch.randn_like(x))
        graph.replay()
        for one, other in zip(found, call(), strict=True):
            assert bitwise_equal(one.detach(), other.detach())


@pytest.mark.parametrize(("d", "d_v"), [(36, 20), (80, 80), (192, 128)])
def test_as_an_operation(d: int, d_v: int) -> None:
    leaves = tuple(x.requires_grad_() for x in draw(d, d_v, device="cuda"))
    operations: Any = torch.ops.flash_attention
    assert {*torch.library.opcheck(operations.fwd.default, leaves).values()} == {"SUCCESS"}
    with torch.no_grad():
        o, lse = operations.fwd(*leaves)
    qkv = [x.detach() for x in leaves]
    arguments = torch.randn_like(o), torch.randn_like(lse), *qkv, o, lse, None, False, True, 7
    assert {*torch.library.opcheck(operations.bwd.default, arguments).values()} == {"SUCCESS"}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize(("d", "d_v"), [(36, 36), (192, 128)])
def test_compiled(d: int, d_v: int, mode: str) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(attend, fullgraph=True, mode=mode)
    for _ in range(3):
        qkv = draw(d, d_v, BF16, (203, 203), "cuda")
        assert bitwise_equal(compiled(*qkv).clone(), attend(*qkv))
    if mode == "default":
        leaves = [x.requires_grad_() for x in qkv]
        found = torch.autograd.grad(compiled(*leaves, deterministic=True).sum(), leaves)
        expected = torch.autograd.grad(attend(*leaves, deterministic=True).sum(), leaves)
        assert all(map(bitwise_equal, found, expected))
