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
    RaceError,
    compare_schedules,
    launch_triton,
)
from flash_helpers.kernel_configs import DType

from ..conformance.forms import forms_of
from ..support import aligned, run_ptx
from .conformance.suite import emulated, forms_under_test
from .conformance.triton_kernels import triton_copies, triton_kernels
from .gluon import DATA, Matmul
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


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(128, 64), torch.randn(64, 64)
    c = torch.full((128, 128), torch.nan, dtype=torch.float16)[:, ::1]
    kernel = Matmul.make(DType.FP16, 128, 64, 64, 0).kernel()
    descriptors = [*map(Descriptor.of, (a.half(), b.half(), c[:, 64:]))]
    launch_triton(kernel, (1, 1, 1), [*descriptors, 64], written=[2])
    torch.testing.assert_close(c[:, 64:], a.half() @ b.half(), atol=2e-2, rtol=2e-3)
    assert c[:, :64].isnan().all()


# --- forms that only Triton writes ---------------------------------------------------------------


def test_every_form_occurs_in_a_micro_kernel() -> None:
    for file in DATA.glob("gluon_*.ptx"):
        assert set(forms_of(file.read_text())) <= forms_under_test()


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
    }
    for case in kernels.cases:
        actual = kernels.result(emulated(kernels.entry), case)
        if case.form in expected:
            np.testing.assert_array_equal(actual, expected[case.form], case.form)
    copies = triton_copies()
    np.testing.assert_array_equal(emulated(copies.entry), copies.inputs.view(np.uint8))


def test_a_switch_without_the_arm() -> None:
    out = aligned(32, np.uint32)
    body = """mov.u32 %r0, %lane; T: .branchtargets A, B; brx.idx %r0, T;
A: mov.u32 %r1, 1; B: mad.wide.u32 %x0, %lane, 4, %p0; st.global.b32 [%x0], %r0;"""
    with pytest.raises(InvalidOperandError, match="index 2 of 2 targets"):
        run_ptx(body, [out])
