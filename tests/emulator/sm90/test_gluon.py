"""A warp-specialised matrix product that Triton compiled from Gluon: right under every schedule,
without a race, and wrong without any one of its synchronisations; and how such kernels are
launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flash_helpers.emulator import (
    Descriptor,
    InvalidLaunchError,
    InvalidOperandError,
    LaunchOptions,
    OutOfBoundsError,
    RaceError,
    ReadOnlyMemoryError,
    compare_schedules,
    launch_triton,
)
from flash_helpers.emulator.sm90.registers import find_pairs
from flash_helpers.emulator.translator.ptx_parser import PtxFile
from flash_helpers.kernel_configs import DType

from ..conformance.forms import forms_of
from ..support import HEADER, aligned, run_ptx
from .conformance.suite import emulated, forms_under_test
from .conformance.triton_kernels import triton_copies, triton_kernels
from .gluon import DATA, Compiled, Matmul
from .gluon_mutants import MATMUL, campaign, orders
from .mutations import hopper_synchronisation


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
@pytest.mark.parametrize("sizes", [(128, 64, 64), (200, 136, 328)])
def test_matmul(dtype: DType, sizes: tuple[int, int, int], seed: int) -> None:
    problem = Matmul.make(dtype, *sizes, seed)
    blocks = [-(-size // block) for size, block in zip(sizes, (128, 64, 64), strict=True)]

    def run(options: LaunchOptions) -> list[object]:
        c, report = problem.run(problem.kernel(), options)
        assert problem.is_right(c)
        # Every warp of eight multiplies 16 rows, four times along a block's 64.
        assert report.mma_instructions == 8 * 4 * blocks[0] * blocks[1] * blocks[2]
        return [c]

    compare_schedules(run, seed)


def test_every_synchronisation_is_needed(seed: int) -> None:
    problem = Matmul.make(DType.FP16, 128, 64, 64 * 8, seed)
    kernel = problem.kernel()

    def runs(ptx: str) -> bool:
        return all(
            problem.is_right(problem.run(replace(kernel, ptx=ptx), options)[0])
            for options in orders(seed, 0)
        )

    mutants = hopper_synchronisation(kernel.ptx)
    assert len(mutants) > 35
    outcome = campaign(runs, kernel.ptx, kernel.name, mutants, MATMUL, DATA)
    print(outcome, outcome.found)
    assert outcome.survivors == []
    assert outcome.redundant <= 11


def test_barriers_that_no_fence_shows_to_the_copies(seed: int) -> None:
    """What Triton itself does not write, and its tutorials lack."""
    problem = Matmul.make(DType.FP16, 128, 64, 64, seed)
    ptx = problem.kernel().ptx.replace("fence.proxy.async.shared::cta;", "", 1)
    with pytest.raises(RaceError, match="mbarrier used by a bulk load, without a fence"):
        problem.run(replace(problem.kernel(), ptx=ptx))


# --- launches ----------------------------------------------------------------------------------


def _arguments() -> list[Any]:
    a, b, c = aligned((128, 64), np.uint16), aligned((64, 64), np.uint16), aligned((128, 64), "u2")
    return [*map(Descriptor.of, (a, b, c)), 64]


REFUSED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "1 descriptors fewer": lambda a: [*a[:2], 64],
    "more descriptors than it takes": lambda a: [*a[:3], a[2]],
    "rank 1, compiled for 2": lambda a: [Descriptor(a[0].base, (128,), (1,)), *a[1:]],
    "elements of 4 bytes, compiled for 2": lambda a: [
        Descriptor.of(aligned((128, 64), np.float32)), *a[1:]],
    "padding 'nan'": lambda a: [replace(a[0], padding="nan"), *a[1:]],
    "the last must be 1": lambda a: [replace(a[0], strides=(64, 2)), *a[1:]],
    "a multiple of 16|multiples of 16": lambda a: [replace(a[0], strides=(68, 1)), *a[1:]],
    "negative strides": lambda a: [Descriptor.of(a[0].base[::-1]), *a[1:]],
    "which has 4 bytes": lambda a: [*a[:3], 1 << 40],
    "more arguments than its": lambda a: [*a, *range(20)],
    "parameters of .* bytes given": lambda a: a[:3],
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused_launches(message: str) -> None:
    kernel = Matmul.make(DType.FP16, 128, 64, 64, 0).kernel()
    launch_triton(kernel, (1, 1, 1), _arguments(), written=[2])
    with pytest.raises(InvalidLaunchError, match=message):
        launch_triton(kernel, (1, 1, 1), REFUSED[message](_arguments()), written=[2])


def test_arguments_that_may_only_be_read() -> None:
    kernel = Matmul.make(DType.FP16, 128, 64, 64, 0).kernel()
    with pytest.raises(ReadOnlyMemoryError, match="argument 10"):
        launch_triton(kernel, (1, 1, 1), _arguments(), written=[0, 1])


def test_counts(seed: int) -> None:
    """The counting variant of a kernel with a switch."""
    problem = Matmul.make(DType.FP16, 128, 64, 64 * 5, seed)
    c, report = problem.run(problem.kernel(), LaunchOptions(count=True))
    assert problem.is_right(c) and report.counts is not None
    counts = {item.opcode: item.totals.executions for item in report.counts.instructions}
    # One warp loads, eight multiply; three others take the switch's arms that do nothing.
    assert counts["cp.async.bulk.commit_group"] == 8 and counts["brx.idx"] == 2 * 4


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(128, 64), torch.randn(64, 64)
    c = torch.full((128, 128), torch.nan, dtype=torch.float16)[:, ::1]
    kernel = Matmul.make(DType.FP16, 128, 64, 64, 0).kernel()
    descriptors = [*map(Descriptor.of, (a.half(), b.half(), c[:, 64:]))]
    launch_triton(kernel, (1, 1, 1), [*descriptors, 64], written=[2])
    torch.testing.assert_close(c[:, 64:], a.half() @ b.half(), atol=2e-2, rtol=2e-3)
    assert c[:, :64].isnan().all()
    with pytest.raises(InvalidLaunchError, match="a tensor on meta: the emulator runs on the CPU"):
        launch_triton(kernel, (1, 1, 1), [*descriptors[:2], c.to("meta"), 64])


# Each block passes numbers from thread to thread through its part of the scratch memory.
_SCRATCH = f"""{HEADER}.visible .entry k(.param .u64 out, .param .u64 halves, .param .b16 bits,
.param .b16 half, .param .u64 scratch, .param .u64 profile) {{
.reg .b64 %at, %x<3>; .reg .b32 %block, %own, %other; .reg .b16 %h<2>;
mov.u32 %block, %ctaid.x; mov.u32 %own, %tid.x; mad.lo.u32 %own, %block, 32, %own;
xor.b32 %other, %own, 31;
ld.param.u64 %x0, [scratch]; mad.wide.u32 %at, %own, 4, %x0; st.global.b32 [%at], %own;
bar.sync 0;
mad.wide.u32 %at, %other, 4, %x0; ld.global.b32 %other, [%at];
ld.param.u64 %x1, [out]; mad.wide.u32 %at, %own, 4, %x1; st.global.b32 [%at], %other;
ld.param.b16 %h0, [bits]; ld.param.b16 %h1, [half]; mov.b32 %other, {{%h0, %h1}};
ld.param.u64 %x2, [halves]; mad.wide.u32 %at, %own, 4, %x2; st.global.b32 [%at], %other; ret; }}"""


def test_scratch_memory_and_numbers_of_two_bytes() -> None:
    out, halves = aligned((2, 32), np.uint32), aligned((2, 32, 2), np.uint16)
    arguments = [out, halves, b"\x12\x34", 1.5]
    launch_triton(Compiled(_SCRATCH, "k", 1, 0, [], 128), (2, 1, 1), arguments)
    np.testing.assert_array_equal(out, np.arange(64, dtype=np.uint32).reshape(2, 32)[:, ::-1])
    assert (halves[..., 0] == 0x3412).all() and (halves[..., 1].view(np.float16) == 1.5).all()
    with pytest.raises(OutOfBoundsError, match="scratch"):
        launch_triton(Compiled(_SCRATCH, "k", 1, 0, [], 124), (2, 1, 1), arguments)


# --- forms that only Triton writes ---------------------------------------------------------------


def test_every_form_occurs_in_a_micro_kernel() -> None:
    texts = [file.read_text() for file in DATA.glob("gluon_*.ptx")]
    assert texts
    for text in texts:
        assert set(forms_of(text)) <= forms_under_test()


def test_forms_of_triton() -> None:
    kernels = triton_kernels()
    words, thread = kernels.inputs.view(np.uint32), np.arange(64, dtype=np.uint32)
    lane = thread % 32
    arm_0, arm_1 = 0x22222222, 0x11111111
    switched = np.where(lane % 2, words + 1 ^ arm_1, words + 1 ^ arm_0)
    switched = np.where(lane % 4 == 2, words + words + 1 ^ arm_1, switched)
    expected = {
        "brx.idx": np.where(lane % 4 == 3, words + 1 ^ arm_0, switched),
        "barrier.sync": words[thread ^ 32],
        "ld.shared.b8": words >> 8 & 0xFF,
        "mov.pred": words,
        "pmevent": words,
        "addc.u32": 16 + (words >> 31),
        "add.cc.u32": words + words,
        "bar.red.or.pred": np.ones_like(words),
        "st.shared::cta.v4.b32": np.choose(
            thread % 4, [words, lane - 1, thread - 2, words[thread & ~np.uint32(3)]]
        ),
    }
    for case in kernels.cases:
        actual = kernels.result(emulated(kernels.entry), case)
        if case.form in expected:
            np.testing.assert_array_equal(actual, expected[case.form], case.form)
    for space in ("cluster", "cta"):
        copies = triton_copies(space)
        np.testing.assert_array_equal(emulated(copies.entry), copies.inputs.view(np.uint8))


def test_loops_of_the_same_name() -> None:
    """A branch stays in its scope: no path leads around the wait, so nothing needs a check."""
    loop = "{ .reg .pred q; again: setp.eq.u32 q, %r1, 0; @q bra again; }"
    body = f"""wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %x0, %x1, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; {loop} WAIT {loop} add.f32 %f0, %f0, %f1;"""
    head = ".entry k() { .reg .b32 %r<2>; .reg .b64 %x<2>; .reg .f32 %f<4>; "
    wait = "wgmma.wait_group.sync.aligned 0;"
    for text, found in ((wait, 0), ("", 1)):
        entry = PtxFile(head + body.replace("WAIT", text) + " }").entry("k")
        assert sum(pair.in_flight for pair in find_pairs(entry)) == found


def test_a_switch_without_the_arm() -> None:
    out = aligned(32, np.uint32)
    body = """mov.u32 %r0, %lane; T: .branchtargets A, B; brx.idx %r0, T;
A: mov.u32 %r1, 1; B: mad.wide.u32 %x0, %lane, 4, %p0; st.global.b32 [%x0], %r0;"""
    with pytest.raises(InvalidOperandError, match="index 2 of 2 targets"):
        run_ptx(body, [out])
