"""layer_norm, rms_norm and mean_var in the emulator, races on, against fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from flash_attention import operators
from flash_attention.operators.moments.calls import KERNEL
from flash_attention.operators.norms import gradients, kernels, launches
from flash_attention.operators.rows.op import RowConfig, row_call
from flash_attention.triton_kit import emulated
from flash_attention.triton_kit.offline import compile_op

from .compare import excess
from .planting import found, planted
from .values import DTYPES, every_pair, ordinary, shifted, with_gaps

LOOPED = RowConfig(1, 256, False, 2)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_norm = pytest.mark.parametrize("layer", [True, False], ids=["layer", "rms"])
Tensors = dict[str, torch.Tensor]


def draw(shape: tuple[int, ...], dtype: torch.dtype, seed: int, names: str) -> Tensors:
    """x and what `names` has the letters of: residual, weight, bias."""
    made = {"x": ordinary(shape, dtype, seed) * 2 + 1}
    if "r" in names:
        made["residual"] = ordinary(shape, dtype, seed + 1)
    if "w" in names:
        made["weight"] = ordinary(shape[-1:], dtype, seed + 2)
    if "b" in names:
        made["bias"] = ordinary(shape[-1:], dtype, seed + 3)
    return made


def norm(layer: bool, given: Tensors, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(output, what was normalised)."""
    function: Any = operators.layer_norm if layer else operators.rms_norm
    made = function(**given, **more)
    return made if "residual" in given else (made, given["x"])


def exact(layer: bool, given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The same in fp64; the sum with the residual is rounded to its type, as it is written."""
    wide = {name: tensor.double() for name, tensor in given.items()}
    total = wide["x"]
    if "residual" in wide:
        total = total + wide["residual"]
        total = total + (total.to(given["x"].dtype).double() - total).detach()
    size, weight = total.shape[-1:], wide.get("weight")
    if layer:
        return F.layer_norm(total, size, weight, wide.get("bias"), 1e-5), total
    return F.rms_norm(total, size, weight, 1e-6), total


def check(layer: bool, given: Tensors, **more: Any) -> None:
    output, total = norm(layer, given, **more)
    wanted, sums = exact(layer, given)
    assert torch.equal(total.double(), sums)
    assert excess(output, wanted, wanted.abs().max()) <= 8


@each_dtype
@each_norm
def test_forward(layer: bool, dtype: torch.dtype, seed: int) -> None:
    bias = "b" * layer
    check(layer, draw((5, 200), dtype, seed, "w" + bias))
    check(layer, draw((2, 3, 1000), dtype, seed, "rw" + bias))
    for columns in (255, 1003):
        check(layer, draw((3, columns), dtype, seed, "rw" + bias), config=LOOPED)


@each_norm
def test_without_a_weight_and_with_one_of_another_type(layer: bool, seed: int) -> None:
    check(layer, draw((4, 64), torch.float32, seed, ""))
    check(layer, draw((4, 64), torch.bfloat16, seed, "w") | {"weight": torch.linspace(1, 2, 64)})
    assert norm(layer, {"x": torch.zeros(0, 7)})[0].shape == (0, 7)


@each_norm
def test_strides(layer: bool, seed: int) -> None:
    given = draw((6, 8, 40), torch.float32, seed, "rw")
    for view in (with_gaps(given["x"]), shifted(given["x"]), given["x"][:, :, :]):
        check(layer, given | {"x": view})
    check(layer, draw((8, 6, 40), torch.float32, seed, "w") | {"x": given["x"].transpose(0, 1)})


@pytest.mark.parametrize("config", [None, LOOPED], ids=["registers", "loop"])
def test_a_large_mean_does_not_hide_the_variance(config: RowConfig | None, seed: int) -> None:
    given = {"x": ordinary((3, 1000), torch.float32, seed) + 1e4}
    output, _ = norm(True, given, config=config)
    wanted, _ = exact(True, given)
    assert excess(output, wanted, 1e4) <= 2  # x itself has no more places


def test_a_constant_row_and_one_with_nan() -> None:
    x = torch.full((3, 100), 7.0)
    x[1, 5] = float("nan")
    for layer in (True, False):
        output, _ = norm(layer, {"x": x})
        wanted, _ = exact(layer, {"x": x})
        assert excess(output, wanted, 1.0) <= 8


def differentiated(layer: bool, given: Tensors, function: Any, grads: list[Any]) -> list[Any]:
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in given.items()}
    outputs = function(layer, leaves)[: len(grads)]
    return list(torch.autograd.grad(outputs, list(leaves.values()), grads))


@every_pair(
    layer={"layer": True, "rms": False},
    looped={"registers": False, "loop": True},
    names={"all": "rwb", "x": ""},
)
def test_backward(
    layer: bool, looped: bool, names: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if looped:
        short = replace(launches.ROWS_WHOLE, most_whole=64)
        monkeypatch.setattr(launches, "ROWS_WHOLE", short)
    names = names if layer else names.replace("b", "")
    for dtype in (torch.float32, torch.bfloat16)[: 1 + ("r" in names)]:
        given = draw((71, 300), dtype, seed, names)
        grads = [ordinary((71, 300), dtype, seed + 4 + i) for i in range(1 + ("r" in names))]
        got = differentiated(layer, given, norm, grads)
        wide = {name: tensor.double() for name, tensor in given.items()}
        if "r" in names:  # the sum as it was rounded, which the gradient passes by
            wide["x"] = (given["x"] + given["residual"]).double()
            wide["residual"] = torch.zeros_like(wide["x"])
        wanted = differentiated(layer, wide, exact, [grad.double() for grad in grads])
        for name, mine, its in zip(given, got, wanted, strict=True):
            assert excess(mine, its, its.abs().max()) <= 16, name
        again = differentiated(layer, given, norm, grads)
        assert all(map(torch.equal, got, again)), "the order of the sums is not fixed"


def test_a_gradient_of_the_sum_only(seed: int) -> None:
    given = draw((5, 32), torch.float32, seed, "rw")
    x = given["x"].requires_grad_()
    _, total = norm(False, given)
    (got,) = torch.autograd.grad(total.sum(), x)
    assert torch.equal(got, torch.ones_like(x))


@each_dtype
@pytest.mark.parametrize("algorithm", ["two_pass", "welford"])
def test_mean_and_variance(algorithm: str, dtype: torch.dtype, seed: int) -> None:
    for columns, config in ((200, None), (1, LOOPED), (1001, LOOPED)):
        x = ordinary((3, columns), dtype, seed)
        mean, var = operators.mean_var(x, algorithm=algorithm, config=config)
        wide = x.double()
        assert excess(mean, wide.mean(-1), 1.0) <= 4
        assert excess(var, wide.var(-1, correction=0), 1.0) <= 8
    x = ordinary((2, 3, 500), torch.float32, seed) + 1e4
    mean, var = operators.mean_var(x, correction=1, algorithm=algorithm, config=LOOPED)
    assert mean.shape == var.shape == (2, 3)
    assert excess(mean, x.double().mean(-1), 1e4) <= 2
    assert excess(var, x.double().var(-1), 1e4) <= 2


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weight": torch.zeros(7)}, ValueError, r"weight has shape \(7,\): expected \(8,\), the last"),
    ({"bias": torch.zeros(8, dtype=torch.int32)}, ValueError, "bias has dtype torch.int32: allowe"),
    ({"residual": torch.zeros(8)}, ValueError, r"residual has shape \(8,\): expected \(3, 8\), th"),
    ({"residual": torch.zeros(3, 8).half()}, ValueError, "residual has dtype torch.float16, but x"),
    ({"eps": -1.0}, ValueError, "eps is -1.0: it must not be negative"),
    ({"eps": None}, TypeError, "eps is None: expected a number"),
    ({"x": torch.zeros(3, 0)}, ValueError, r"x has shape \(3, 0\): its last dimension must have"),
]


@pytest.mark.parametrize(("change", "kind", "words"), BAD, ids=[words[:25] for *_, words in BAD])
def test_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        operators.layer_norm(**{"x": torch.zeros(3, 8), **change})


def test_mean_var_refuses() -> None:
    for correction in (-1, 8):
        with pytest.raises(ValueError, match=rf"correction is {correction}: allowed are 0 to 7"):
            operators.mean_var(torch.zeros(3, 8), correction=correction)


FORWARD_BUGS = [
    ("/ length + eps", "/ length"),
    ("product(away, away), 1) / length", "product(away, away), 1) / BLOCK"),
    ("away = tl.where(inside, v - m[:, None], 0.0)\n        r", "away = v - m[:, None]\n        r"),
    ("y += tl.load(bias + column", "y += tl.load(weight + column"),
    ("y, mask=inside)", "y)"),
    ("tl.store(sum_at, v, mask=inside)", "tl.store(sum_at, v + 1, mask=inside)"),
]


@pytest.mark.parametrize(("old", "new"), FORWARD_BUGS)
def test_planted_bugs_are_found(
    old: str, new: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = draw((5, 100), torch.float32, seed, "rwb")
    given["x"] *= 1e-3
    given["residual"] *= 1e-3  # so that eps counts

    def right() -> bool:
        try:
            check(True, given)
        except AssertionError:
            return False
        return True

    assert right()
    bad = planted(launches.FORWARD, kernels, old, new)
    monkeypatch.setattr(launches, "FORWARD", bad)
    assert found(right)


BACKWARD_BUGS = [
    ("dx -= mean_g", "dx += mean_g"),
    ("dx = g - hat * mean_gh", "dx = g - mean_gh"),
    ("tl.num_programs(0))", "tl.num_programs(0) + 1)"),
    ("part + tl.num_programs(0)", "part + 1"),
    ("tl.sum(product(dy, hat), 0)", "tl.sum(hat, 0)"),
    ("place = tl.program_id(0).to(tl.int64) * columns + at", "place = at"),
]


@pytest.mark.parametrize(("old", "new"), BACKWARD_BUGS)
def test_planted_bugs_of_the_backward_pass_are_found(
    old: str, new: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = draw((200, 100), torch.float32, seed, "wb")
    grads = [ordinary((200, 100), torch.float32, seed + 4)]
    wide = {name: tensor.double() for name, tensor in given.items()}
    wanted = differentiated(True, wide, exact, [grads[0].double()])

    def right() -> bool:
        got = differentiated(True, given, norm, grads)
        pairs = zip(got, wanted, strict=True)
        return all(excess(mine, its, its.abs().max()) <= 16 for mine, its in pairs)

    assert right()
    bad = planted(launches.ROWS_WHOLE, gradients, old, new)
    monkeypatch.setattr(launches, "ROWS_WHOLE", bad)
    assert found(right)


def test_a_naive_variance_is_found(seed: int) -> None:
    """The mean of squares less the square of the mean loses everything where the mean is large."""
    x = ordinary((3, 500), torch.float32, seed) + 1e4
    mean, var = torch.empty(3), torch.empty(3)
    naive = planted(
        KERNEL, __import__("flash_attention.operators.moments.kernels", fromlist=["x"]),
        "squares = tl.sum(product(away, away), 1)\n    elif",
        "squares = tl.sum(v * v, 1) - length * m * m\n    elif",
    )  # fmt: skip

    def right() -> bool:
        call = row_call(3, 500, (x, mean, var), (x,), numbers=(500.0,), WELFORD=False)
        emulated.run(naive, naive.default(call), call, (x, mean, var))
        return excess(var, x.double().var(-1, correction=0), 1e4) <= 2

    assert found(right)


# Bytes a thread, (forward, backward), with a residual: LayerNorm's loop and the gradients of
# 16384 numbers, the former in Triton 3.9 only. All are faster than what does not spill.
ALLOWED_SPILLS = {(True, 65_536): (24, 0), (False, 16_384): (0, 216), (True, 16_384): (0, 80)}


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("columns", [1024, 8192, 16_384, 32_768, 65_536])
@each_norm
def test_no_spills(layer: bool, columns: int, architecture: int) -> None:
    x = torch.empty(2, columns, dtype=torch.bfloat16)
    vector, statistics = x[0], torch.empty(2)
    partial = torch.empty(2, columns)
    forward = (x, x, vector, vector, x, x, statistics, statistics)
    backward = (x, x, x, vector, statistics, statistics, x, partial, partial)
    words: dict[str, Any] = {"LAYER": layer, "WEIGHT": True, "BIAS": layer}
    asked = {"RESIDUAL": True, "STATISTICS": True, **words}
    call = row_call(2, columns, forward, (x,) * 3, numbers=(1e-5,), **asked)
    op = launches.FORWARD if layer else launches.FORWARD_RMS
    compiled = compile_op(op, op.default(call), call, architecture=architecture)
    allowed = ALLOWED_SPILLS.get((layer, columns), (0, 0))
    assert compiled.spill_bytes <= allowed[0] and "ld.global.v4.b32" in compiled.ptx
    op, config = launches.of_rows(2, columns, layer)
    words["BIAS"] = layer and launches.bias_at_once(columns)
    call = row_call(2, columns, backward, (x,) * 4, programs=2, ADDED=True, **words)
    compiled = compile_op(op, config, call, architecture=architecture)
    assert compiled.spill_bytes <= allowed[1]
