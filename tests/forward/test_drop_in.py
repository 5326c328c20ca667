"""PyTorch's scaled_dot_product_attention with these kernels: on the CPU in the emulator, where
PyTorch's own functions are replaced in the same way as those of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flash_attention
from flash_helpers.check.tolerance import bitwise_equal
from tests.drop_in_calls import Qkv, ours, sdpa, with_gradients

pytestmark = pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"), reason="this torch is too old for it"
)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    flash_attention.disable()


def tensors(dtype: torch.dtype = torch.float16, d_head: int = 64, length: int = 40) -> Qkv:
    made = torch.Generator().manual_seed(7)
    q, k, v = (torch.randn(1, 2, n, d_head, generator=made).to(dtype) for n in (40, length, length))
    return q, k, v


def test_output_and_gradients_are_those_of_flash_attn_func() -> None:
    expected = with_gradients(lambda *x: ours(*x, causal=True, softmax_scale=0.3), tensors())
    flash_attention.enable(emulator=True)
    found = with_gradients(lambda *x: sdpa(*x, is_causal=True, scale=0.3), tensors())
    assert len(found) == 4 and all(map(bitwise_equal, found, expected))


@pytest.mark.parametrize("d_head", [36, 80])
def test_head_dimensions_that_no_dense_kernel_has(d_head: int) -> None:
    """Which PyTorch fills up on a GPU, if they are no multiples of 8, and not on the CPU."""
    expected = with_gradients(lambda *x: ours(*x), tensors(d_head=d_head))
    flash_attention.enable(emulator=True)
    found = with_gradients(lambda *x: sdpa(*x), tensors(d_head=d_head))
    assert len(found) == 4 and all(map(bitwise_equal, found, expected))


def test_a_module_of_pytorch_takes_them() -> None:
    torch.manual_seed(1)
    module = torch.nn.MultiheadAttention(128, 2, batch_first=True).half()
    x = torch.randn(1, 24, 128).half()
    expected = module(x, x, x, need_weights=False)[0]
    flash_attention.enable(emulator=True)
    found = module(x, x, x, need_weights=False)[0]
    assert not bitwise_equal(found, expected) and (found - expected).abs().max() < 2e-3


def masked(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return sdpa(q, k, v, attn_mask=torch.ones(40, k.shape[2], dtype=torch.bool).tril())


NOT_SERVED: dict[str, tuple[Qkv, Callable[..., Any]]] = {
    "fp32": (tensors(torch.float32), sdpa),
    "a head dimension that no kernel has": (tensors(d_head=264), sdpa),
    "a mask": (tensors(), masked),
    "keys hidden from the first on": (tensors(length=48), lambda *x: sdpa(*x, is_causal=True)),
    "no keys": (tensors(length=0), sdpa),
}


@pytest.mark.parametrize("case", NOT_SERVED)
def test_what_these_kernels_do_not_serve_is_pytorch_s(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qkv, call = NOT_SERVED[case]
    expected = with_gradients(call, qkv)
    flash_attention.enable(emulator=True)
    launched: list[object] = []
    monkeypatch.setattr("flash_attention.interface.emulated.launch", launched.append)
    found = with_gradients(call, qkv)
    assert all(map(bitwise_equal, found, expected)) and launched == []


def test_disable_restores_pytorch_s() -> None:
    expected = sdpa(*tensors())
    for _ in range(2):
        flash_attention.enable(emulator=True)
        flash_attention.enable(emulator=True)
        assert bitwise_equal(sdpa(*tensors()), ours(*tensors()))
        flash_attention.enable()
        assert bitwise_equal(sdpa(*tensors()), expected), "the CPU's are PyTorch's by default"
        flash_attention.disable()
        flash_attention.disable()
        assert bitwise_equal(sdpa(*tensors()), expected)


def test_a_registry_that_does_not_let_go_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of PyTorch 2.10."""
    for name in ("current", "restore"):
        monkeypatch.delattr(f"torch.nn.attention.{name}_flash_attention_impl", raising=False)
    flash_attention.disable()
    flash_attention.enable(emulator=True)
    flash_attention.disable()


def test_an_older_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.library, "get_kernel")
    with pytest.raises(RuntimeError, match="or newer, or call"):
        flash_attention.enable()


def test_pytorch_s_registry_knows_them() -> None:
    listed = getattr(torch.nn.attention, "list_flash_attention_impls", None)
    if listed is None or not hasattr(torch.nn.attention, "restore_flash_attention_impl"):
        pytest.skip("this torch has no registry")
    assert "flash_attention_from_scratch" in listed()


def test_a_compiled_function_takes_them_whenever_it_runs() -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(lambda *x: sdpa(*x), backend="aot_eager", fullgraph=True)
    expected = compiled(*tensors())
    flash_attention.enable(emulator=True)
    assert bitwise_equal(compiled(*tensors()), ours(*tensors()))
    flash_attention.disable()
    assert bitwise_equal(compiled(*tensors()), expected)
