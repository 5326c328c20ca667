"""Recorded and compiled calls beside those that docs/support.md has rows for (tests/docs and
tests/torch_op run these): calls that were checked before, other threads, modes that only watch,
torch.compile."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import flash_attention
from flash_attention import interface
from flash_attention.checks.arguments import Plan
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.contract import Variant
from tests.docs.cases import CONFIG, draw
from tests.docs.recorded_cases import CALLS, Call, recorded, traced

BOTH_CALLS: dict[str, Call] = {
    "forward": CALLS["forward"],
    "flash_attn_func": lambda q, k, v: flash_attention.flash_attn_func(q, k, v),
}
BOTH = pytest.mark.parametrize("name", ["forward", "flash_attn_func"])


def check(call: Call, *tensors: Tensor) -> None:
    q, k, v = tensors or (draw(), draw(), draw())
    outcome = compare(call(q, k, v), attention_reference(q, k, v)[0])
    assert outcome.passed, outcome.describe()


def test_a_remembered_call_is_refused_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors of these are plain ones: the cache of checked calls would launch them."""

    def launch_again(*_: object) -> bool:
        raise AssertionError("a refused call was launched")

    monkeypatch.setattr(interface, "launch_again", launch_again)
    for record in (traced, recorded("real"), recorded("real", pre_dispatch=True)):
        with pytest.raises(NotImplementedError, match="cannot record this call"):
            record(CALLS["forward"])


@BOTH
def test_modes_that_only_watch_change_nothing(name: str) -> None:
    with FlopCounterMode(display=False):
        check(BOTH_CALLS[name])
    with torch.inference_mode():
        check(BOTH_CALLS[name])
    with forward_ad.dual_level():  # open, but not of these tensors
        check(BOTH_CALLS[name])


def test_plain_tensors_inside_a_transformation_are_computed() -> None:
    tensors = draw(), draw(), draw()

    def doubled(x: Tensor) -> Tensor:
        check(CALLS["forward"], *tensors)
        return x * 2

    assert torch.equal(torch.func.vmap(doubled)(torch.ones(3)), torch.full((3,), 2.0))


@BOTH
def test_what_another_thread_records_does_not_matter(name: str) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            check(BOTH_CALLS[name])
        except BaseException as error:
            errors.append(error)

    def recorded_here(x: Tensor) -> Tensor:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x * 2

    make_fx(recorded_here)(draw())
    make_fx(recorded_here, pre_dispatch=True)(draw())
    torch.jit.trace(recorded_here, (draw(),), check_trace=False)  # type: ignore[no-untyped-call]
    assert not errors


@BOTH
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_a_compiled_function_gives_the_same_results(name: str, backend: str) -> None:
    """`forward` breaks the graph: what is before and after it is compiled."""
    call = BOTH_CALLS[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: call(q + 0, k, v) * 1, backend=backend)
    for _ in range(3):  # the first compiles, the others run what was compiled
        check(compiled)


def test_addresses_may_be_symbols() -> None:
    """Behind the break, torch.compile has addresses of which PyTorch 2.4 does not know `|`."""

    class Address(int):
        def __or__(self, _: object) -> int:
            raise TypeError("unsupported operand type(s) for |: 'SymInt' and 'SymInt'")

    plan = Plan(CONFIG, b"tail", 1, Variant.ANY)
    addresses = [Address(address) for address in (64, 80, 96, 112, 0)]
    assert plan.args(*addresses).endswith(b"tail")
    for i in range(4):
        with pytest.raises(ValueError, match="must be aligned to 16"):
            plan.args(*(Address(8) if i == j else x for j, x in enumerate(addresses)))


def test_a_whole_graph_cannot_be_had() -> None:
    """Nor with torch.export's `strict`, which asks for one too."""
    call = CALLS["forward"]
    torch._dynamo.reset()
    whole = torch.compile(lambda q, k, v: call(q + 0, k, v) * 1, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        whole(draw(), draw(), draw())
