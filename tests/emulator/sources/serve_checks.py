"""What is run of the kernels that serve to find a bug, as checks.py: calls of the public functions,
of whose kernels one is another."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from flash_attention import emulated
from flash_helpers.check.serving import ServeRule
from flash_helpers.emulator import LaunchReport
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sm80_serve.family import Sm80Serve
from flash_helpers.kernels.sm90_serve.sets import get_hopper_serve_kernel_configs
from tests.serving import test_append as append
from tests.serving import test_cases as cases
from tests.serving import test_counts as counts
from tests.serving import test_gradients as gradients
from tests.serving import test_hopper as hopper
from tests.serving import test_kernels as kernels
from tests.serving import test_shares as shares
from tests.serving.problems import Batch, poisoned_memory

from ..serve import problems
from ..serve.campaign import KERNELS
from ..serve.replay import served_by
from .checks import Check, Stage
from .kernels import Kernel

_OURS = ("emulator/serve/problems.py", "serving/problems.py", "serving/packed.py")
_CAUSAL, _LEFT = ServeRule(causal=True), ServeRule(window=(9, 0))


@contextmanager
def among_others(
    kernel: Kernel, launched: Any
) -> Iterator[list[tuple[KernelConfig, LaunchReport]]]:
    """Calls launch `launched` where they would launch `kernel`; what all did."""
    real = emulated.emulated_kernel
    reports: list[tuple[KernelConfig, LaunchReport]] = []

    @dataclass
    class Reported:
        config: KernelConfig
        one: Any

        def launch(self, **arguments: Any) -> LaunchReport:
            reports.append((self.config, self.one.launch(**arguments)))
            return reports[-1][1]

    def given(config: KernelConfig, variant: Variant | None = None) -> Any:
        is_it = Kernel.of(config, variant) == kernel
        return Reported(config, launched if is_it else real(config, variant))

    with mock.patch.object(emulated, "emulated_kernel", given):
        yield reports


def _check(kernel: Kernel, name: str, call: Callable[..., object], files: tuple[str, ...]) -> Check:
    """`call` may want what the fixtures of these names give."""
    wanted = {"monkeypatch", "reports"} & set(inspect.signature(call).parameters)

    def run(launched: Any) -> str:
        with (
            among_others(kernel, launched) as reports,
            pytest.MonkeyPatch.context() as patch,
            poisoned_memory(),
        ):
            if kernel.config.FAMILY == "sm90_serve":
                patch.setattr(Sm80Serve, "preference", lambda *_: -1)
            given = {"monkeypatch": patch, "reports": reports}
            call(**{name: given[name] for name in wanted})
        return ""

    return Check(name, run, files)


def _test(kernel: Kernel, test: Callable[..., object], **named: Any) -> Check:
    """A test of tests/serving."""
    values = ", ".join(f"{name}={value}" for name, value in named.items())
    file = f"serving/{test.__module__.rpartition('.')[2]}.py"
    call = functools.partial(test, **named)
    return _check(kernel, f"{test.__name__}({values})", call, (file, *_OURS))


def _served(kernel: Kernel, calls: tuple[problems.Call, ...]) -> tuple[Check, ...]:
    config: Any = kernel.config
    batch = functools.partial(Batch, d=config.d_head, dtype=config.dtype.to_torch_dtype())

    def run(number: int) -> None:
        multiprocessors, call = calls[number]
        with served_by(config, multiprocessors):
            call(batch)

    return tuple(
        _check(kernel, f"call {number} of {len(calls)}", functools.partial(run, number), _OURS)
        for number in range(len(calls))
    )


def _differentiated(kernel: Kernel) -> tuple[Check, ...]:
    config: Any = kernel.config
    named = {"d": config.d_head, "dtype": config.dtype.to_torch_dtype()}
    return (
        *(
            _check(kernel, f"gradients {i}", lambda make=make: make(**named).check(), _OURS)
            for i, make in enumerate(problems.GRADIENTS)
        ),
        *(
            _check(
                kernel, f"of {name} alone",
                lambda name=name: problems.ALONE(**named).check_alone(name), _OURS,
            )
            for name in "qkv"
        ),
    )  # fmt: skip


def sm80_serve_stages() -> list[Stage]:
    known = [Kernel.of(*one) for one in KERNELS["sm80_serve"]]
    prompts, few, many = known[0], known[1], known[3]  # of fp16: tiles of 64, 16 and 64 rows
    merges = Kernel.of(prompts.config, Variant.COMBINE)
    appends = Kernel.of(few.config, Variant.APPEND)
    return [
        Stage(few, _served(few, problems.DECODES)),
        Stage(prompts, _served(prompts, problems.PROMPTS)),
        Stage(many, _served(many, problems.DECODES)),
        Stage(merges, _served(merges, problems.PROMPTS[2:])),
        Stage(appends, _appends(appends)),
        *(Stage(k, _thoroughly(k), thorough=True) for k in (few, prompts, many, merges)),
    ]


def _appends(kernel: Kernel) -> tuple[Check, ...]:
    test = functools.partial(_test, kernel)
    rotary = (append.Rotary.draw(64, True), append.Rotary.draw(32, False))
    return (
        *(
            test(append.test_case_16_new_keys_are_written_and_seen, page=page, rotary=one)
            for page, one in ((8, rotary[0]), (0, rotary[1]), (32, None))
        ),
        test(append.test_case_15_without_room_nothing_else_is_written, page=0),
        test(append.test_case_15_without_room_nothing_else_is_written, page=16),
        test(append.test_packed_rows_of_any_number),
        test(append.test_positions_may_be_other_than_places),
        test(append.test_left_padding),
        test(append.test_keys_and_values_in_one_allocation),
        test(append.test_case_15_a_cache_that_becomes_full),
        test(append.test_one_length_for_all),
    )


def _thoroughly(kernel: Kernel) -> tuple[Check, ...]:
    test = functools.partial(_test, kernel)
    return (
        *(test(counts.test_decode, name=name) for name in counts.DECODES),
        *(test(counts.test_prompts, name=name) for name in counts.BATCHES),
        *(test(kernels.test_groups, group=group) for group in (3, 12, 71)),
        *(test(kernels.test_lengths_around_blocks, keys=keys) for keys in (0, 1, 64, 129)),
        *(test(kernels.test_a_sink_counts_once, num_splits=n) for n in (1, 2, 128)),
        *(
            test(shares.test_any_number_of_thread_blocks, name=name, n_blocks=n)
            for name in shares.BATCHES
            for n in (1, 2, 13, 40)
        ),
        test(shares.test_what_is_counted_is_zero_again),
        test(shares.test_many_parts_are_merged_by_groups),
        test(shares.test_shares_end_with_tiles_where_little_is_missing),
        test(cases.test_case_02_a_window_to_the_right_of_the_last_keys),
        test(cases.test_case_05_sequences_without_queries),
        *(test(cases.test_case_06_many_empty_sequences, n=n) for n in (31, 70)),
        *(
            test(cases.test_case_07_what_nobody_sees_has_no_effect, page=page, rule=rule)
            for page, rule in ((8, _CAUSAL), (24, _LEFT))
        ),
        test(cases.test_case_08_a_nan_stays_in_its_sequence),
        *(test(cases.test_case_11_extreme_sinks, sink=sink) for sink in (100.0, -float("inf"))),
        test(cases.test_case_12_a_soft_cap_on_large_scores),
        test(cases.test_case_13_sequences_share_pages),
        test(cases.test_case_14_far_pages),
        test(cases.test_case_20_left_padding_with_pages),
        *(
            test(cases.test_case_22_other_head_dimensions, d=d, d_v=d_v)
            for d, d_v in ((40, 40), (64, 8))
        ),
        test(
            cases.test_case_23_a_sequence_has_the_same_bits_in_every_batch,
            num_splits=3,
            queries=[1, 2, 1],
        ),
        test(cases.test_case_25_an_output_with_strides),
        test(cases.test_case_26_rows_that_are_not_used_stay),
    )


def sm80_bwd_serve_stages() -> list[Stage]:
    config = KERNELS["sm80_bwd_serve"][0][0]
    known = [Kernel.of(config, variant) for variant in config.variants()]
    tests: tuple[Callable[..., object], ...] = (
        gradients.test_edges_of_windows, gradients.test_many_empty_sequences,
        gradients.test_used_rows_alone_have_gradients,
        gradients.test_equal_lengths_have_the_bits_of_the_other_backward_pass,
        gradients.test_gradients_of_equal_lengths_with_a_window, gradients.test_a_negative_scale,
    )  # fmt: skip
    return [
        *(Stage(kernel, _differentiated(kernel)) for kernel in known),
        *(Stage(kernel, tuple(_test(kernel, t) for t in tests), thorough=True) for kernel in known),
    ]


def sm90_serve_stages() -> list[Stage]:
    ((config, variant),) = KERNELS["sm90_serve"]
    small = Kernel.of(config, variant)
    wide = Kernel.of([c for c in get_hopper_serve_kernel_configs() if not c.pack_gqa][-1])
    tests: tuple[Callable[..., object], ...] = (
        hopper.test_a_sequence_has_the_same_bits_in_every_batch,
        hopper.test_tiles_that_blocks_ask_for, hopper.test_caches_and_used_lengths,
        hopper.test_rows_that_are_not_used_stay, hopper.test_flash_attn_func_with_a_window,
    )  # fmt: skip
    test = functools.partial(_test, small)
    return [
        Stage(small, _served(small, problems.HOPPER)),
        Stage(
            small,
            (
                *(test(one) for one in tests),
                *(
                    test(counts.test_prompts_on_hopper, name=n)
                    for n in ("full", "causal", "window")
                ),
                *(test(hopper.test_many_empty_sequences, n=n) for n in (34, 70)),
                test(hopper.test_keys_that_end_far_from_their_beginning, d_head=64),
            ),
            thorough=True,
        ),
        Stage(wide, _served(wide, problems.HOPPER), thorough=True),
    ]
