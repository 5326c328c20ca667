"""flash_attn_func with windows, soft caps and sinks: what goes to the kernels that serve, what
comes out, and what does not need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import flash_attention
from flash_attention import interface
from flash_helpers.check.serving import ServeRule, attend_sequence
from flash_helpers.check.tolerance import bitwise_equal, compare

Qkv = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def draw(seqlen_q: int = 70, seqlen_k: int = 90, d: int = 64, batch: int = 2) -> Qkv:
    generator = torch.Generator().manual_seed(0)
    shapes = (seqlen_q, 4), (seqlen_k, 2), (seqlen_k, 2)
    q, k, v = (torch.randn(batch, *shape, d, generator=generator).half() for shape in shapes)
    return q, k, v


def attend(*qkv: torch.Tensor, **options: Any) -> torch.Tensor:
    function: Any = flash_attention.flash_attn_func
    o = function(*qkv, **options)
    assert isinstance(o, torch.Tensor)
    return o


def check(qkv: Qkv, rule: ServeRule, sinks: torch.Tensor | None = None) -> None:
    found: Any = flash_attention.flash_attn_func(
        *qkv, 0.0, rule.scale, rule.causal, rule.window, rule.softcap, return_attn_probs=True,
        s_aux=sinks,
    )  # fmt: skip
    o, lse, nothing = found
    assert nothing is None and o.shape == qkv[0].shape
    for i, one in enumerate(zip(*qkv, strict=True)):
        expected, expected_lse = attend_sequence(*one, rule, sinks=sinks)
        assert compare(o[i], expected).passed, compare(o[i], expected).describe()
        torch.testing.assert_close(lse[i].double(), expected_lse, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "rule",
    [ServeRule(window=(0, 0)), ServeRule(window=(3, 17)), ServeRule(causal=True, window=(15, 15)),
     ServeRule(window=(-1, 7)), ServeRule(causal=True, softcap=5.0, scale=1.0),
     ServeRule(window=(9, -1), softcap=2.0, scale=-0.5)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("lengths", [(70, 90), (90, 20)])
def test_every_rule(rule: ServeRule, lengths: tuple[int, int]) -> None:
    check(draw(*lengths), rule)
    check(draw(*lengths), rule, torch.tensor([0.5, -1.0, 3.0, 0.0]))


@pytest.mark.parametrize("d", [24, 59, 111, 128])
def test_case_21_any_head_dimension(d: int) -> None:
    check(draw(d=d), ServeRule(window=(20, 0)))


def test_tensors_that_kernels_cannot_read_are_copied() -> None:
    qkv = draw()
    odd = [torch.nn.functional.pad(x, (1, 0))[..., 1:] for x in qkv]
    assert bitwise_equal(attend(*odd, window_size=(9, 0)), attend(*qkv, window_size=(9, 0)))


@pytest.mark.parametrize(
    ("options", "same"),
    [({"window_size": (89, 0)}, {"causal": True}), ({"window_size": (-1, 0)}, {"causal": True}),
     ({"window_size": (None, None)}, {}), ({"window_size": [89, 69]}, {}),
     ({"window_size": (89, 89), "causal": True}, {"causal": True})],
)  # fmt: skip
def test_case_03_a_window_that_hides_nothing_more_is_none(
    options: dict[str, Any], same: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kernels, and gradients."""
    monkeypatch.setattr(
        "flash_attention.serving.dense.attend", lambda *_, **__: pytest.fail("it was served")
    )
    q, k, v = draw()
    v.requires_grad_()
    o, expected = attend(q, k, v, **options), attend(q, k, v, **same)
    assert o.requires_grad and bitwise_equal(o, expected)


@pytest.mark.parametrize("options", [{}, {"window_size": [-1, -1]}])
def test_plain_calls_are_not_served(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "flash_attention.serving.dense.attend", lambda *_, **__: pytest.fail("it was served")
    )
    attend(*draw(), **options)


@pytest.mark.parametrize("shape", [(0, 5, 4, 64), (2, 0, 4, 64)])
def test_without_queries(shape: tuple[int, ...]) -> None:
    q, k = torch.empty(shape).half(), torch.zeros(shape[0], 9, 2, 64).half()
    assert attend(q, k, k, softcap=1.0).shape == shape


def test_without_keys_a_sink_remains() -> None:
    q, k, v = draw(3, 0)
    check((q, k, v), ServeRule(), torch.arange(4.0))


def test_autocast() -> None:
    qkv = [x.float() for x in draw()]
    with torch.autocast("cpu", dtype=torch.float16):
        o = attend(*qkv, window_size=(9, 0))
    assert bitwise_equal(o, attend(*draw(), window_size=(9, 0)))


OPTIONS: list[dict[str, Any]] = [
    {"window_size": (9, 0)}, {"softcap": 1.0}, {"s_aux": torch.zeros(4)}
]  # fmt: skip


@pytest.mark.parametrize("name", ["q", "k", "v", "s_aux"])
def test_gradients_are_recorded(name: str) -> None:
    tensors = dict(zip("qkv", draw(), strict=True)) | {"s_aux": torch.zeros(4)}
    tensors[name].requires_grad_()
    assert attend(**tensors).requires_grad
    with torch.no_grad():
        assert not attend(**tensors).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_what_records_is_refused(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "load_library", lambda: pytest.fail("something was launched"))
    qkv = draw()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, **options)

    def traced() -> object:
        return torch.jit.trace(call, qkv)  # type: ignore[no-untyped-call]

    def compiled() -> object:
        return torch.compile(call, fullgraph=True, backend="eager")(*qkv)

    ways: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: make_fx(call)(*qkv), NotImplementedError, "make_fx"),
        (traced, NotImplementedError, "torch.jit.trace"),
        (lambda: torch.func.vmap(call)(*(x[None] for x in qkv)), TypeError, "torch.func.vmap"),
        # PyTorch 2.6 says no more than that there was one.
        (compiled, Exception, "cannot record window_size, softcap and s_aux|Observed exception"),
    ]
    for record, exception, message in ways:
        with pytest.raises(exception, match=message):
            record()
