"""Calls that the extension remembers: launched again where nothing but addresses differs."""

from __future__ import annotations

import pytest

from .conftest import Tree
from .remembered_calls import REMEMBERED, TENSORS, packed


def test_a_remembered_call_is_launched_again(tree: Tree) -> None:
    code = f"known.remember('config', *tensors, None, None, False, 0, {packed()})\n"
    code += "print(len(known), ask(), ask(Tensor(8)), ask(object()), ask(grad=True), sep='\\n')\n"
    code += "known.clear(); print(ask())"
    prepare = "if _C.device_count(): print('there is a device'); sys.exit(0)"
    said = tree.run_with_extension(f"{prepare}{TENSORS}{code}").splitlines()
    if said == ["there is a device"]:
        pytest.skip("the kernel would read what is at made-up addresses")
    assert said[0].endswith("exchange API has version 2.0: expected 1.x")
    assert said[1:3] == ["False", "1"]
    again, *others = said[3:]
    assert again.startswith("CudaError: "), "it was not launched"
    no_attribute = "AttributeError: 'Tensor' object has no attribute 'requires_grad'"
    assert [line for line in others if line] == ["False", "False", no_attribute, "False"]


# What differs from the remembered call, and what becomes of it.
NOT_THE_SAME = {
    "another configuration": ("config='other'", "False"),
    "a scale": ("scale=0.125", "False"),
    "a scale that is no float": ("scale=1", "False"),
    "causal": ("causal=True", "False"),
    "causal in other clothes": ("causal=0", "False"),
    "a gradient that is not wanted": ("d_q=None", "False"),
    "a gradient of the log-sum-exp": ("d_lse=Tensor(64 << 20)", "False"),
    "no sums of dQ": ("d_q_sums=None", "False"),
    "no tensor": ("k=object()", "False"),
    "not aligned": ("d_o=Tensor(8 + (64 << 20))", "False"),
    "freed memory": ("v=Tensor(0)", "False"),
    "an output over an input": ("d_v=found['o']", "False"),
    "an output over another": ("d_v=found['d_k']", "False"),
    "scratch memory over an input": ("row_stats=found['d_o']", "False"),
    "one requires a gradient": ("q=Tensor(1 << 20, requires_grad=True), grad=True", "False"),
    "recorded, of who knows what": ("grad=True", "no attribute 'requires_grad'"),
    "tensors elsewhere": ("q=Tensor(64 << 20), d_o=Tensor(65 << 20)", "computes no gradients"),
}  # fmt: skip


def test_a_remembered_backward_pass_is_launched_again(tree: Tree) -> None:
    """Kernel 0 is of a forward pass, so that the launch itself refuses: it was reached."""
    code = "\n".join(f"print(ask({changes}))" for changes, _ in NOT_THE_SAME.values())
    code += "\nknown.clear(); print(ask(), len(known))"
    code += "\ntry: known.remember('config', *found.values(), None, False, 0, args[1:])"
    code += "\nexcept ValueError as error: print(error)"
    forward_s, first, again, *others = tree.run_with_extension(
        f"{TENSORS}{REMEMBERED}{code}"
    ).splitlines()[1:]
    assert (forward_s, first) == ("False", "False")
    assert again.startswith("1 ValueError: ") and "it computes no gradients" in again
    *answers, cleared, refused = others
    assert (cleared, refused) == ("False 0", "args is not an argument record of 368 bytes")
    for (what, (_, expected)), answer in zip(NOT_THE_SAME.items(), answers, strict=True):
        assert expected in answer, f"{what}: {answer}"
