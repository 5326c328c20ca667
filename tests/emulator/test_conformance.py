"""The emulator against an H200: a micro-kernel for each form of instruction that occurs in the
built kernels, and for most others that the emulator knows. conformance/answers.npz holds what the
GPU answered (record.py), so no GPU is needed here."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx

from .conformance import forms
from .conformance.compare import mismatches, mma_exact
from .conformance.emulated import outputs
from .conformance.memory_kernels import PARAMETERS
from .conformance.micro_kernel import Case, MicroKernels
from .conformance.suite import UNANSWERED, Answers, all_cases, save_answers, suite
from .conformance.values import OPERANDS
from .conformance.warp_kernels import LANES, MMA_FORMS, MMA_MORE_SETS, MMA_SETS, mma_kernels

ANSWERS = Answers()
TESTED = Counter(case.form for _, case in all_cases())
RECORD = "run python -m tests.emulator.record on an H200"


def test_every_form_in_the_built_kernels_has_a_micro_kernel() -> None:
    built = forms.recorded()
    missing = sorted(set(built) - set(TESTED))
    print(f"{len(built) - len(missing)} of {len(built)} forms of the built kernels are covered by "
          f"{sum(TESTED[form] for form in built)} micro-kernels")  # fmt: skip
    assert not missing, f"forms without a micro-kernel: {', '.join(missing)}"


def test_every_form_in_the_triton_kernels_has_a_micro_kernel() -> None:
    """Those of Gluon: sm90/test_gluon.py."""
    texts = [path.read_text() for path in (Path(__file__).parent / "data").glob("triton_*.ptx")]
    assert texts
    assert not set(forms.kernels_per_form(texts)) - set(TESTED)


def test_no_kernel_has_a_new_form() -> None:
    """Every thirtieth kernel of all sets; the slow test below takes all of them."""
    some = forms.ampere_configs()[::30]
    new = set(forms.kernels_per_form(map(kernel_ptx, some))) - set(forms.recorded())
    assert not new, f"add micro-kernels and run python -m tests.emulator.conformance.forms: {new}"


@pytest.mark.slow
def test_the_list_of_forms_is_that_of_all_kernels() -> None:
    assert forms.all_kernels() == forms.recorded()


@pytest.mark.parametrize(
    ("kernels", "case"), all_cases(), ids=lambda item: getattr(item, "key", "")
)
def test_as_on_the_h200(kernels: MicroKernels, case: Case) -> None:
    expected = ANSWERS.get(kernels, case)
    if expected is None and case.key in UNANSWERED:
        pytest.skip(f"not recorded yet: {RECORD}")
    assert expected is not None, f"no recorded answer to {case.key}: {RECORD}"
    actual = kernels.result(outputs()[kernels.entry], case)
    wrong = mismatches(case, actual, expected)
    bits = f"u{actual.itemsize}"
    shown = [
        f"result {i}: {actual.view(bits)[i]:x} here, {expected.view(bits)[i]:x} there; "
        + ", ".join(f"{k}: " + " ".join(f"{o.view(f'u{o.itemsize}')[i]:x}" for o in OPERANDS[k])
                    for k in OPERANDS if f"%{k}a" in case.text)
        for i in wrong[:4]
    ]  # fmt: skip
    assert not len(wrong), f"{len(wrong)} of {case.count} differ\n" + "\n".join(shown)


def test_all_else_is_answered() -> None:
    missing = {case.key for kernels, case in all_cases() if ANSWERS.get(kernels, case) is None}
    assert missing == UNANSWERED, f"take what is recorded off UNANSWERED; for the rest, {RECORD}"


def test_the_forms_of_the_built_kernels_have_recorded_answers() -> None:
    """A changed micro-kernel needs a new answer before anything that rests on it is shipped."""
    assert ANSWERS.about, f"nothing recorded: {RECORD}"
    built = set(forms.recorded())
    answered = {
        case.form for kernels, case in all_cases() if ANSWERS.get(kernels, case) is not None
    }
    print(f"answers of {ANSWERS.about}")
    assert not built - answered, f"no answers to {built - answered}: {RECORD}"


def test_pairs_of_parameters_are_read_in_order() -> None:
    """The micro-kernels swap the two words, to show their order."""
    (kernels,) = (kernels for kernels in suite() if kernels.entry == "memory")
    for place, start in (("[memory_struct]", 0), ("[memory_struct+8]", 8), ("[g+24]", 24)):
        (case,) = (c for c in kernels.cases if c.key == f"ld.param.v2.u32 {place}")
        first, second = struct.unpack_from("<II", PARAMETERS, start)
        results = kernels.result(outputs()["memory"], case)
        assert len(results) == 64 and (results == np.uint64(first << 32 | second)).all()


@pytest.mark.parametrize("sets", [MMA_SETS, MMA_MORE_SETS], ids=["sets", "more sets"])
@pytest.mark.parametrize("kind", MMA_FORMS)
def test_mma_is_as_exact_as_promised(kind: str, sets: list[str]) -> None:
    """Emulator and H200 against f64: within the bound, and exact where every sum is an integer."""
    kernels = mma_kernels(kind, sets)
    (case,) = kernels.cases
    exact, tolerance = mma_exact(kind, sets)
    recorded = ANSWERS.get(kernels, case)
    assert recorded is not None, RECORD
    for results in (kernels.result(outputs()[kernels.entry], case), recorded):
        finite = np.isfinite(results) & (np.abs(exact) < 2.0**127)
        with np.errstate(invalid="ignore"):
            error = np.abs(results.astype(np.float64) - exact)
        assert (error <= tolerance)[finite].all()
        # Infinity stands for what is too large; NaN for infinities of both signs, and for NaN.
        assert (np.isnan(results) == np.isnan(exact)).all()
        integers = np.repeat([what == "integers" for what in sets], LANES * 4)
        np.testing.assert_array_equal(results[integers], exact[integers])


def test_a_wrong_result_is_seen_and_so_is_a_changed_question(tmp_path: Path) -> None:
    """The comparison itself: answers saved and read again, one bit flipped."""
    save_answers(tmp_path / "answers.npz", outputs(), {"device": "none"})
    answers = Answers(tmp_path / "answers.npz")
    for kernels, case in all_cases():
        expected = answers.get(kernels, case)
        actual = kernels.result(outputs()[kernels.entry], case)
        assert len(mismatches(case, actual, expected)) == 0
        flipped = actual.copy()
        flipped.view(np.uint8)[flipped.itemsize - 1] ^= (
            0x40  # the top exponent bit, or an integer's
        )
        assert 0 in mismatches(case, flipped, expected), case.key
        changed = Case(**(vars(case) | {"text": case.text + " "}))
        assert answers.get(kernels, changed) is None
