"""Hopper's instructions against an H200 (conformance/answers.npz), and against numpy: layouts as
CUTLASS writes them, boxes as slices of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.kernel_configs import (
    HopperForwardKernelConfig,
    get_hopper_kernel_configs,
    get_hopper_smoke_kernel_configs,
)

from ..conformance.compare import mismatches, ulp
from ..conformance.forms import forms_of
from ..conformance.micro_kernel import Case, MicroKernels
from ..conformance.suite import Answers, save_answers
from ..conformance.warp_kernels import MMA_MORE_SETS, MMA_SETS, operand_bits
from ..support import aligned, run_ptx
from .campaign import CONFIGS, LAZY, TWO_Q
from .conformance.copy_kernels import TensorCopy, load_kernels, loads
from .conformance.suite import (
    ANSWERS,
    UNANSWERED,
    all_cases,
    answered,
    answered_forms,
    emulated,
    suite,
)
from .conformance.wgmma_kernels import (
    A_START,
    A_WORDS,
    B_START,
    SET_BYTES,
    THREADS,
    TILE_BYTES,
    Form,
    Operand,
    layout_forms,
    layout_kernels,
    operand,
    value_kernels,
)
from .gemm import hopper_ptx
from .gluon import DATA

RECORDED = Answers(ANSWERS)
RECORD = "run python -m tests.emulator.record on an H200"


@pytest.mark.parametrize(
    ("kernels", "case"), all_cases(), ids=lambda item: getattr(item, "key", "")
)
def test_as_on_the_h200(kernels: MicroKernels, case: Case) -> None:
    expected = RECORDED.get(kernels, case)
    if expected is None and case.key in UNANSWERED:
        pytest.skip(f"not recorded yet: {RECORD}")
    assert expected is not None, f"no recorded answer to {case.key}: {RECORD}"
    actual = kernels.result(emulated(kernels.entry), case)
    wrong = mismatches(case, actual, expected)
    shown = [f"result {i}: {actual[i]!r} here, {expected[i]!r} there" for i in wrong[:4]]
    assert not len(wrong), f"{len(wrong)} of {case.count} differ\n" + "\n".join(shown)


def test_all_else_is_answered() -> None:
    missing = {case.key for kernels, case in all_cases() if not answered(RECORDED, kernels, case)}
    assert missing == UNANSWERED, f"take what is recorded off UNANSWERED; for the rest, {RECORD}"


def _unanswered_forms(configs: Iterable[HopperForwardKernelConfig]) -> set[str]:
    triton = [path.read_text() for path in DATA.glob("gluon_*.ptx")]
    assert triton
    texts = [hopper_ptx("gemm.cu"), *triton, *map(kernel_ptx, configs)]
    forms = {form for text in texts for form in forms_of(text)}
    return forms - answered_forms(RECORDED, Answers())


def test_the_forms_of_the_built_kernels_have_recorded_answers() -> None:
    """A changed micro-kernel needs a new answer before anything that rests on it is shipped."""
    assert not _unanswered_forms([LAZY, TWO_Q]), RECORD


@pytest.mark.slow
def test_the_forms_of_all_kernels_have_recorded_answers() -> None:
    configs = {*CONFIGS, *get_hopper_kernel_configs(), *get_hopper_smoke_kernel_configs()}
    assert not _unanswered_forms(sorted(configs)), RECORD


def test_a_flipped_bit_and_a_changed_question_are_seen(tmp_path: Any) -> None:
    outputs = {kernels.entry: emulated(kernels.entry) for kernels in suite()}
    save_answers(tmp_path / "answers.npz", outputs, {"device": "none"}, all_cases())
    answers = Answers(tmp_path / "answers.npz")
    for kernels, case in all_cases():
        expected, actual = answers.get(kernels, case), kernels.result(outputs[kernels.entry], case)
        assert len(mismatches(case, actual, expected)) == 0
        flipped = actual.copy()
        flipped.view(np.uint8)[flipped.itemsize - 1] ^= 0x40
        assert 0 in mismatches(case, flipped, expected), case.key
        changed = Case(**(vars(case) | {"text": case.text + " "}))
        assert answers.get(kernels, changed) is None


# --- wgmma -------------------------------------------------------------------------------------


def _matrix(tile: Any, operand: Operand, rows: int) -> Any:
    """[rows of M or N][16] from canonical layouts, in units of 16 bytes: shape and strides as in
    CUTLASS's cute/atom/mma_traits_sm90_gmma.hpp; then Swizzle<B, 4, 3> of the byte address."""
    lead, stride = operand.leading // 16, operand.stride // 16
    width = max(operand.swizzle // 16, 1)
    mn, k = np.arange(rows), np.arange(16)
    if not operand.transposed:
        along_k = k // 8 * (lead if operand.swizzle == 0 else 1)
        units = (mn % 8 * width + mn // 8 * stride)[:, None] + along_k
        element = np.broadcast_to(k % 8, units.shape)
    else:
        chunk = mn // 8
        if operand.swizzle == 0:
            units = (chunk * stride)[:, None] + k % 8 + k // 8 * lead
        else:
            units = (
                (chunk % width + chunk // width * lead)[:, None] + k % 8 * width + k // 8 * stride
            )
        element = np.broadcast_to((mn % 8)[:, None], units.shape)
    address = operand.start + 16 * units
    bits = width.bit_length() - 1
    address = address ^ ((address >> 7 & ((1 << bits) - 1)) << 4)
    return tile[address // 2 + element]


def _widened(bits: Any, kind: str) -> Any:
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _from_fragments(values: Any, columns: int) -> Any:
    """[thread][...] of 64 x columns: warp w has rows 16 w to 16 w + 15, as mma has them."""
    shaped = values.reshape(4, 8, 4, columns // 8, 2, 2)  # warp g t column-block half pair
    return shaped.transpose(0, 4, 1, 3, 2, 5).reshape(64, columns)


def _expected(form: Form, data: Any) -> tuple[Any, Any]:
    """Exact sums of one set of inputs, and how far a wgmma may be off."""
    tile = data[:TILE_BYTES].view(np.uint16)
    words = data[TILE_BYTES : TILE_BYTES + 4 * THREADS * A_WORDS].view(np.uint16)
    c = data[TILE_BYTES + 4 * THREADS * A_WORDS :].view(np.float32).reshape(THREADS, -1)
    if form.a is None:
        a = words.reshape(4, 8, 4, 2, 2, 2).transpose(0, 4, 1, 3, 2, 5).reshape(64, 16)
    else:
        a = _matrix(tile, form.a, 64)
    b = _matrix(tile, form.b, form.columns)
    sign = form.signs[0] * form.signs[1]
    with np.errstate(all="ignore"):
        summand = _from_fragments(c[:, : form.columns // 2].astype(np.float64), form.columns)
        summand = summand * form.accumulates
        left, right = (_widened(np.ascontiguousarray(m), form.kind) for m in (a, b))
        exact = sign * (left @ right.T) + summand
        return exact, 5.25 * ulp(np.abs(left) @ np.abs(right.T) + np.abs(summand))


def _check(kernels: Any, form: Form, buffer: Any) -> None:
    (case,) = (case for case in kernels.cases if case.key == form.key)
    results = kernels.result(buffer, case).reshape(kernels.grid, -1)
    for index, values in enumerate(results):
        exact, tolerance = _expected(form, kernels.inputs[index * SET_BYTES :][:SET_BYTES])
        actual = _from_fragments(values.astype(np.float64), form.columns)
        finite = np.isfinite(actual) & (np.abs(exact) < 2.0**127)
        with np.errstate(invalid="ignore"):
            assert (np.abs(actual - exact) <= tolerance)[finite].all(), (form, index)
        assert (np.isnan(actual) == np.isnan(exact)).all(), (form, index)
        assert finite.any() or index > 0


@pytest.mark.parametrize("form", layout_forms(), ids=lambda form: form.key)
def test_wgmma_reads_what_its_descriptors_name(form: Form) -> None:
    (kernels,) = (item for item in layout_kernels() if item.entry.endswith("_" + form.kind))
    _check(kernels, form, emulated(kernels.entry))


def test_sums_of_special_numbers() -> None:
    for kernels in value_kernels():
        for case in kernels.cases:
            form = next(f for f in _value_forms(kernels) if f.key == case.key)
            _check(kernels, form, emulated(kernels.entry))


def _value_forms(kernels: Any) -> list[Form]:
    kind = kernels.entry.rsplit("_", 1)[1]
    b = operand(128, False, B_START)
    return [Form(kind, 32, a, b, name="values") for a in (None, operand(128, False, A_START))]


# B (8 columns) in shared memory and in the fragments of mma; the same A, accumulators and sums.
_BOTH = """
mov.u32 %r20, smem; mad.wide.u32 %x0, %t, 16, %p0; shl.b32 %r0, %t, 2; add.u32 %r1, %r20, %r0;
ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%x0];
mad.wide.u32 %x1, %t, 4, %p1; setp.lt.u32 %q0, %t, 64; ld.global.b32 %r8, [%x1];
@%q0 st.shared.b32 [%r1], %r8; fence.proxy.async.shared::cta; bar.sync 0;
mad.wide.u32 %x2, %t, 16, %p2; ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%x2];
shl.b32 %r2, %lane, 2; add.u32 %r2, %r20, %r2; ld.shared.b32 %r9, [%r2];
ld.shared.b32 %r10, [%r2+128];
mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 {%f4, %f5, %f6, %f7}, {%r4, %r5, %r6, %r7},
  {%r9, %r10}, {%f0, %f1, %f2, %f3};
shr.u32 %r3, %r20, 4; cvt.u64.u32 %x3, %r3; or.b64 %x3, %x3, 0x80000; setp.eq.u32 %q1, %t, %t;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.KIND.KIND {%f0, %f1, %f2, %f3}, {%r4, %r5, %r6, %r7},
  %x3, %q1, 1, 1, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mad.wide.u32 %x4, %t, 32, %p3; st.global.v4.f32 [%x4], {%f0, %f1, %f2, %f3};
st.global.v4.f32 [%x4+16], {%f4, %f5, %f6, %f7};
"""


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("what", sorted({*MMA_SETS, *MMA_MORE_SETS}))
def test_sums_are_those_of_mma(kind: str, what: str) -> None:
    """The same bits from B in shared memory and from B in fragments: what an H200 has answered
    to mma holds for wgmma."""
    arrays = [aligned(n, np.uint32) for n in (512, 128, 512, 1024)]
    arrays[0][:] = operand_bits(what, kind, "a", 41, 1024).view(np.uint32)
    arrays[1][:64] = operand_bits(what, kind, "b", 42, 128).view(np.uint32)
    arrays[2][:] = operand_bits(what, kind, "c", 43, 512).view(np.uint32)
    body = _BOTH.replace("KIND", kind)
    run_ptx(body, arrays, ".shared .align 128 .b8 smem[256];", block=128)
    results = arrays[3].reshape(128, 2, 4)
    np.testing.assert_array_equal(results[:, 0], results[:, 1])
    assert len(np.unique(results)) > 100 or what in ("zeros", "bits")


# --- bulk copies -------------------------------------------------------------------------------


def _box(copy: TensorCopy, data: Any) -> Any:
    """The box as bytes in the order of shared memory, before swizzling; zeros outside."""
    spec = copy.map
    dims, strides = spec.dims[::-1], (spec.element_bytes, *spec.strides)[::-1]
    start = data[spec.start :]
    tensor = np.lib.stride_tricks.as_strided(
        start, (*dims, spec.element_bytes), (*strides, 1), writeable=False
    )
    place, box = copy.place[::-1], spec.box[::-1]
    lows = [max(0, at) for at in place]
    highs = [
        max(low, min(size, at + n)) for low, size, at, n in zip(lows, dims, place, box, strict=True)
    ]
    result = np.zeros((*box, spec.element_bytes), np.uint8)
    inside = tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))
    target = tuple(
        slice(low - at, high - at) for low, high, at in zip(lows, highs, place, strict=True)
    )
    if all(high > low for low, high in zip(lows, highs, strict=True)):
        result[target] = tensor[inside]
    return result.reshape(-1)


def _swizzle(linear: Any, row_bytes: int, span: int) -> Any:
    """Pieces of 16 bytes to their places; the tile starts at a multiple of 1024. Rows shorter than
    what is swizzled leave gaps of 0xEE bytes."""
    rows = linear.reshape(-1, row_bytes)
    pieces = np.pad(rows, ((0, 0), (0, max(0, span - row_bytes))), constant_values=0xEE)
    pieces = pieces.reshape(-1, 16)
    place = np.arange(len(pieces))
    place = place ^ (place >> 3 & max(span // 16, 1) - 1)
    result = np.empty_like(pieces)
    result[place] = pieces
    return result.reshape(-1)


@pytest.mark.parametrize("copy", loads(), ids=lambda copy: copy.key)
def test_a_bulk_load_is_a_slice(copy: TensorCopy) -> None:
    (kernels,) = (k for k in load_kernels() if k.cases[0].key == f"load {copy.key}")
    (case,) = kernels.cases
    actual = kernels.result(emulated(kernels.entry), case).view(np.uint8)
    row_bytes = copy.map.box[0] * copy.map.element_bytes
    expected = _swizzle(_box(copy, kernels.inputs), row_bytes, copy.map.swizzle)
    np.testing.assert_array_equal(actual, expected)
