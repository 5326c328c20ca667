"""The runner catches what a kernel can do wrong, and reports what it could not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_PARTIAL
from flash_helpers.check import peers
from flash_helpers.check.peers import ReferenceUnavailableError, find_peer
from flash_helpers.check.reference import attention_reference
from flash_helpers.emulator.errors import KernelLocation, OutOfBoundsError
from flash_helpers.kernel_configs import DType, FlashForwardKernelConfig, get_sm80_kernel_configs
from flash_lab.correctness import report
from flash_lab.correctness.runner import FAIL, NOT_RUN, PASS, Options, Row, Session

OPTIONS = Options("cpu", batch=1, n_heads=2, seq_len=64, seed=1, n_runs=3)
PROG = get_sm80_kernel_configs("prog")
KERNEL = replace(PROG[0], d_head=64)
NOT_GENERAL = "and no build has a general kernel of it"
T = torch.Tensor
Forward = Callable[[FlashForwardKernelConfig, T, T, T, T], T | None]


def right(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    return o.copy_(attention_reference(q, k, v)[0])


def run_one(forward: Forward, **changes: int) -> Row:
    return Session(replace(OPTIONS, **changes), forward).run_kernel(KERNEL)  # type: ignore[arg-type]


def test_a_right_kernel_passes() -> None:
    row = run_one(right)
    assert (row.status, row.repeats_equal, row.explanation()) == (PASS, True, "")
    assert row.comparison is not None and row.comparison.relative < 1
    assert row.label == KERNEL.short_form()


def test_a_single_run_says_nothing_about_repeats() -> None:
    row = run_one(right, n_runs=1)
    assert (row.status, row.repeats_equal) == (PASS, None)


def writes_nothing(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    return o


def misses_a_row(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    o[:, :63].copy_(attention_reference(q, k, v)[0][:, :63])
    return o


def wrong_scale(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    return o.copy_(attention_reference(q, k, v, scale=1.02 * 64**-0.5)[0])


def overwrites_q(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    right(config, q, k, v, o)
    q[0, 0, 0, 0] = 7
    return o


class Flaky:
    """One bit off on one of the repeats: within the tolerance, but not the same."""

    def __init__(self, bad_call: int) -> None:
        self.calls = 0
        self.bad_call = bad_call

    def __call__(self, config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
        self.calls += 1
        right(config, q, k, v, o)
        if self.calls == self.bad_call:
            o.view(torch.int16)[0, 5, 0, 0] ^= 1
        return o


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (writes_nothing, "128 of 128 rows are wrong: max abs error inf"),
        (misses_a_row, "first NaN at (0, 63, 0, 0): got nan, expected"),
        (wrong_scale, "rows are wrong"),
        (overwrites_q, "it overwrote its input q"),
        (Flaky(2), "repeated runs differ bitwise"),
        (Flaky(3), "repeated runs differ bitwise"),
    ],
)
def test_a_wrong_kernel_fails_with_the_reason(forward: Forward, words: str) -> None:
    row = run_one(forward)
    assert row.status == FAIL and words in row.explanation()
    assert report.exit_code([row]) == EXIT_FAILED


def test_inputs_are_restored_for_the_next_kernel() -> None:
    session = Session(OPTIONS, overwrites_q)
    assert session.run_kernel(KERNEL).status == FAIL
    session.forward = right
    assert session.run_kernel(KERNEL).status == PASS


def test_an_output_elsewhere_is_not_taken() -> None:
    row = run_one(lambda config, q, k, v, o: right(config, q, k, v, torch.empty_like(o)))
    assert row.status == NOT_RUN and "did not write to the output" in row.explanation()


def refuses(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
    raise ValueError("kernel X is not built;\n nearest: Y")


def test_a_kernel_that_cannot_run_does_not_stop_the_others() -> None:
    good = PROG[1]

    def forward(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
        return (right if config == good else refuses)(config, q, k, v, o)

    rows = list(Session(OPTIONS, forward).run(PROG[:2], []))
    assert [row.status for row in rows] == [NOT_RUN, PASS]
    assert rows[0].explanation() == "ValueError: kernel X is not built; nearest: Y"
    assert report.exit_code(rows) == EXIT_PARTIAL
    assert report.exit_code(rows[:1]) == EXIT_NO_DATA


def test_a_rule_that_the_emulator_found_broken_is_a_failed_check() -> None:
    def out_of_bounds(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
        raise OutOfBoundsError("read of 16 bytes", location)

    location = object.__new__(KernelLocation)
    for name in KernelLocation.__dataclass_fields__:
        object.__setattr__(location, name, 0)
    row = run_one(out_of_bounds)
    assert row.status == FAIL and "OutOfBoundsError: read of 16 bytes" in row.explanation()


def test_a_lost_device_is_said_once_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Session) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    session = Session(OPTIONS, right)
    monkeypatch.setattr(Session, "synchronize", lost)
    rows = list(session.run(PROG[:2], []))
    assert [row.status for row in rows] == [NOT_RUN, NOT_RUN]
    assert "the device is lost since an earlier row" in rows[1].explanation()


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(config: FlashForwardKernelConfig, q: T, k: T, v: T, o: T) -> T:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(interrupted)


def test_references_run_for_every_dtype_and_head_size_in_use() -> None:
    kernels = [KERNEL, replace(KERNEL, dtype=DType.BF16), PROG[0]]
    rows = [row for row in Session(OPTIONS, right).run(kernels, ["v2", "v3"]) if row.config is None]
    assert [(row.dtype, row.d_head) for row in rows] == 2 * [
        (DType.FP16, 64), (DType.FP16, 128), (DType.BF16, 64),
    ]  # fmt: skip
    assert {row.status for row in rows} == {PASS}
    assert rows[0].label == "v2: fp32 reference (FP16, 64)" and rows[0].note == "v2 needs a GPU"


def test_a_reference_that_refuses_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(q: T, k: T, v: T) -> T:
        raise RuntimeError("No available kernel. Aborting execution.")

    peer = peers.Peer("PyTorch cuDNN", "flash-attn 3: not installed", refuse)
    monkeypatch.setattr("flash_lab.correctness.runner.find_peer", lambda *_: peer)
    rows = list(Session(OPTIONS, right).run([KERNEL], ["v3"]))
    assert [row.status for row in rows] == [NOT_RUN, PASS]
    assert "PyTorch cuDNN refuses this: No available kernel." in rows[0].explanation()
    assert report.exit_code(rows) == EXIT_PARTIAL
    details = report.render_details(rows, [])
    assert any(line.endswith("flash-attn 3: not installed") for line in details)
    with pytest.raises(ReferenceUnavailableError, match="cuDNN refuses this"):
        peer(*OPTIONS.problem(DType.FP16, 64).tensors(OPTIONS.seed, "cpu"))


def test_peers_say_why_a_better_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> object:
        raise OSError("undefined symbol: x") if name == "flash_attn.cute" else ModuleNotFoundError

    monkeypatch.setattr("flash_helpers.check.peers.importlib.import_module", broken)
    v3 = find_peer("v3", "cuda")
    assert v3.name == "PyTorch cuDNN"
    problems = "flash-attn 3: not installed; flash-attn 4: import failed: OSError"
    assert v3.note.startswith(problems)
    assert find_peer("v2", "cuda").name == "PyTorch FlashAttention-2"
    with pytest.raises(ValueError, match="reference 'v4' is not known"):
        find_peer("v4", "cuda")


def test_an_installed_peer_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    class Package:
        @staticmethod
        def flash_attn_func(q: T, k: T, v: T, causal: bool) -> tuple[T, T]:
            return q + 1, q

    monkeypatch.setattr("flash_helpers.check.peers.importlib.import_module", lambda name: Package)
    peer = find_peer("v3", "cuda")
    assert (peer.name, peer.note) == ("flash-attn 3", "")
    assert peer(torch.zeros(1), torch.zeros(1), torch.zeros(1)) == 1
