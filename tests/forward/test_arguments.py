"""Bad input is refused by name before anything is launched; the checks are the same on both
devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import flash_attention
from flash_attention.checks.arguments import make_plan
from flash_attention.checks.memory import check_no_overlap
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig
from flash_helpers.kernels.forward_args import unpack_forward_args

CONFIG = FlashForwardKernelConfig(
    DType.FP16, 128, 64, 64, 4, True, True, True, 0, 2, 2, False, True
)
SHAPE = (2, 128, 4, 128)


@pytest.fixture(autouse=True)
def nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: object) -> None:
        raise AssertionError("a refused call was launched")

    monkeypatch.setattr("flash_attention.emulated.launch", launch)


def tensor(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def misaligned(shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    n = tensor(shape).numel()
    return torch.zeros(n + 1, dtype=torch.float16)[1:].view(shape)


def odd_stride() -> torch.Tensor:
    return torch.zeros(2, 128, 4, 129, dtype=torch.float16)[..., :128]


def overlapping_output() -> torch.Tensor:
    return torch.zeros(1, 128, 4, 128, dtype=torch.float16).expand(2, 128, 4, 128)


def gradient() -> torch.Tensor:
    return tensor().requires_grad_()


def freed(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    found = tensor(shape, dtype)
    found.untyped_storage().resize_(found.nbytes - 2)
    return found


# (arguments that replace the good ones, what the message says)
REFUSED: dict[str, tuple[dict[str, Callable[[], Any]], str]] = {
    "q not a tensor": ({"q": lambda: [1.0]}, "q is a list: expected a torch.Tensor"),
    "k not a tensor": ({"k": lambda: None}, "k is None: expected a torch.Tensor"),
    "o not a tensor": ({"o": lambda: 3}, "o is an int: expected a torch.Tensor"),
    "a name as configuration": ({"kernel_cfg": lambda: CONFIG.short_form()}, "is a str"),
    "an unbuildable configuration": (
        {"kernel_cfg": lambda: replace(CONFIG, B_r=96)},
        "B_r = 96 is not supported",
    ),
    "fp32": ({"q": lambda: tensor(dtype=torch.float32)}, "q has dtype torch.float32"),
    "mixed dtypes": ({"v": lambda: tensor(dtype=torch.bfloat16)}, "v has dtype torch.bfloat16"),
    "three dimensions": ({"q": lambda: tensor((128, 4, 128))}, "q has shape .128, 4, 128."),
    "other head size": ({"k": lambda: tensor((2, 128, 4, 64))}, "k has head dimension 64"),
    "k and v differ": ({"v": lambda: tensor((2, 64, 4, 128))}, "they must be equal"),
    "o shaped unlike q": ({"o": lambda: tensor((2, 64, 4, 128))}, "o has shape"),
    "batch sizes": (
        {n: lambda: tensor((1, 128, 4, 128)) for n in "kv"},
        "k has batch size 1, but q has 2",
    ),
    "heads not a multiple": (
        {n: lambda: tensor((2, 128, 3, 128)) for n in "kv"},
        "q has 4 heads and k 3",
    ),
    "too long": (
        {n: lambda: tensor((2, 1, 4, 128)).expand(-1, 2**31 - 1, -1, -1) for n in "kv"},
        "sequences of 128 and 2147483647 rows: at most 2147482623",
    ),
    "causal": ({"causal": lambda: 1}, "causal is an int: expected True or False"),
    "empty": ({n: lambda: tensor((0, 128, 4, 128)) for n in "qkvo"}, "empty tensors"),
    "strided last dimension": (
        {"k": lambda: tensor((2, 128, 128, 4)).transpose(2, 3)},
        "k has stride 4 in its last dimension",
    ),
    "odd stride": ({"v": odd_stride}, "must be multiples of 8 elements"),
    "misaligned": ({"q": misaligned}, "q starts at address 0x.*aligned to 16 bytes"),
    "output elements overlap": ({"o": overlapping_output}, "o has strides .* overlap in memory"),
    "gradient": ({"q": gradient}, "q requires a gradient"),
    "scale NaN": ({"softmax_scale": lambda: float("nan")}, "softmax_scale is nan"),
    "scale infinite in fp32": ({"softmax_scale": lambda: 1e300}, "finite in fp32"),
    "scale minus infinity": ({"softmax_scale": lambda: -float("inf")}, "must be finite"),
    "scale no number": ({"softmax_scale": lambda: "1"}, "softmax_scale is a str: expected a numb"),
    "scale in a tensor": (
        {"softmax_scale": lambda: torch.tensor(0.1)},
        "softmax_scale is a .*Tensor: expected a numb",
    ),
    "negated view": ({"k": lambda: torch._neg_view(tensor())}, "k is a negated view"),
    "gradient of the output": ({"o": gradient}, "o requires a gradient"),
    "gradient of lse": (
        {"lse": lambda: torch.zeros(2, 4, 128, requires_grad=True)},
        "lse requires a gradient",
    ),
    "lse dtype": ({"lse": lambda: tensor((2, 4, 128))}, "lse is a torch.float16"),
    "lse shape": ({"lse": lambda: torch.zeros(2, 128, 4)}, "shape .2, 4, 128. .batch, heads"),
    "freed": ({"v": freed}, "v needs 262144 bytes of memory, and its storage has 262142"),
    "never any": (
        {"k": lambda: torch._efficientzerotensor(SHAPE, dtype=torch.float16)},
        "k needs 262144 bytes of memory, and its storage has 0",
    ),
    "output freed": ({"o": freed}, "o needs 262144 bytes"),
    "lse freed": ({"lse": lambda: freed((2, 4, 128), torch.float32)}, "lse needs 4096 bytes"),
    "sparse": ({"q": lambda: torch.zeros(SHAPE).half().to_sparse()}, "q has layout"),
    "meta device": (
        {n: lambda: torch.empty(SHAPE, device="meta") for n in "qkvo"},
        "q is on meta: only",
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.replace(" ", "-"))
def test_bad_input_is_refused(case: str) -> None:
    replacements, message = REFUSED[case]
    arguments: dict[str, Any] = {"kernel_cfg": CONFIG, "o": torch.zeros(SHAPE).half()}
    arguments |= {name: tensor() for name in "qkv"}
    arguments |= {name: make() for name, make in replacements.items()}
    with pytest.raises((TypeError, ValueError), match=message):
        flash_attention.forward(**arguments)


@pytest.mark.parametrize("name", "qkv")
def test_the_output_must_have_memory_of_its_own(name: str) -> None:
    tensors = {n: tensor() for n in "qkv"}
    q, k, v = tensors.values()
    with pytest.raises(ValueError, match=f"o shares memory with {name}"):
        flash_attention.forward(CONFIG, q, k, v, tensors[name])


def test_neighbours_do_not_overlap() -> None:
    both = torch.zeros(2, *SHAPE, dtype=torch.float16)
    check_no_overlap({"o": both[0]}, {"q": both[1]})


def test_lse_must_have_memory_of_its_own() -> None:
    q, k, v, o = (tensor() for _ in range(4))
    lse = o.view(torch.float32).flatten()[: 2 * 4 * 128].view(2, 4, 128)
    with pytest.raises(ValueError, match="shares memory with"):
        flash_attention.forward(CONFIG, q, k, v, o, lse=lse)


def test_the_stride_of_a_dimension_of_one_element_does_not_matter() -> None:
    q = tensor((1, 128, 4, 128)).as_strided((1, 128, 4, 128), (65537, 512, 128, 1))
    assert q.stride(0) % 8 == 1
    fields = unpack_forward_args(
        make_plan(CONFIG, q, q, q, tensor((1, 128, 4, 128)), None, None).args(16, 16, 16, 16, 0)
    )
    assert fields["q_stride_batch"] == 0


def test_gradients_are_ignored_where_none_are_recorded() -> None:
    q, k, v = gradient(), tensor(), tensor()
    with torch.no_grad():
        make_plan(CONFIG, q, k, v, tensor(), None, None)


def test_the_argument_record_says_what_was_passed() -> None:
    q, o = tensor((2, 128, 4, 128)), tensor((2, 4, 128, 128)).transpose(1, 2)
    k = tensor((2, 192, 2, 128))
    v = tensor((192, 2, 2, 128)).transpose(0, 1)
    lse = torch.zeros(2, 4, 128)
    plan = make_plan(CONFIG, q, k, v, o, lse, 0.25)
    fields = unpack_forward_args(plan.args(16, 32, 48, 64, 81))
    assert plan.grid == 2 * 4 * 2
    assert [fields[n] for n in ("q", "k", "v", "o", "lse")] == [16, 32, 48, 64, 81]
    for name, x in (("q", q), ("k", k), ("v", v), ("o", o)):
        assert [fields[f"{name}_stride_{a}"] for a in ("batch", "seq", "head")] == [*x.stride()[:3]]
    assert (fields["batch"], fields["seqlen_q"], fields["seqlen_k"]) == (2, 128, 192)
    assert (fields["n_heads_q"], fields["n_heads_kv"]) == (4, 2)
    assert fields["softmax_scale"] == 0.25
