"""What is run of each family's kernels to find a bug: the checks of `make test`, cheap first."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from flash_attention import emulated
from flash_helpers.check.tolerance import ROW_FACTOR
from flash_helpers.emulator import LaunchOptions, schedules
from flash_helpers.kernel_configs import (
    HopperForwardKernelConfig,
    KernelConfig,
    parse_kernel_name_into_config,
)
from flash_helpers.kernels.contract import Variant
from tests.forward import test_emulated_forward, test_general_forward, test_hopper_forward
from tests.forward import test_rare_shapes as rare
from tests.forward import test_scores_and_masks as scores

from .. import campaign as sm80
from .. import ncu_counts, test_attention_counts
from ..attention import Problem
from ..planting import WRONG
from ..sm90 import campaign as sm90
from ..sm90 import rare_runs
from ..sm90.attention import HopperProblem, crowded_problems, problems
from .kernels import Kernel

SEED = 1
# Tiles are loaded ahead of the matmul that they are for.
AHEAD = "(FP16, 64, 64, 64, 4): async+eager+swizzled+load_2_2_2_tiles+buffer+opt_softmax"
RANDOM = 4  # schedules of crowded problems
_COUNTS, _SCORES = "emulator/sm90/rare_runs.py", "forward/test_scores_and_masks.py"


@dataclass(frozen=True)
class Check:
    """`run` gets the kernel to be launched; it returns what is wrong, '' for nothing, or raises
    AssertionError, or what the emulator does. `files`: where it stands, if those are no files that
    all results depend on (results.py)."""

    name: str
    run: Callable[[Any], str]
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stage:
    kernel: Kernel
    checks: tuple[Check, ...]
    thorough: bool = False  # after all that are not


@contextmanager
def in_place_of(kernel: Kernel, launched: Any) -> Iterator[None]:
    """forward() on CPU tensors launches `launched` where it would launch `kernel`."""

    def given(config: KernelConfig, variant: Variant | None = None) -> Any:
        wanted = Kernel.of(config, variant)
        if wanted != kernel:
            raise ValueError(f"the check of {kernel} launches {wanted}")
        return launched

    with mock.patch.object(emulated, "emulated_kernel", given):
        yield


def through_forward(kernel: Kernel, name: str, check: Callable[[], object]) -> Check:
    """A check that calls forward()."""

    def run(launched: Any) -> str:
        with in_place_of(kernel, launched):
            check()
        return ""

    return Check(name, run)


def _named(name: str) -> KernelConfig:
    config: KernelConfig = parse_kernel_name_into_config(name)
    return config


# --- the Ampere family ----------------------------------------------------------------------------


def _right(kind: Callable[[Any, int], list[Problem]], config: Any) -> Check:
    made = functools.cache(lambda: kind(config, SEED))

    def run(launched: Any) -> str:
        for problem, options in itertools.product(made(), schedules(SEED)):
            o, lse, report = problem.run(launched, options)
            if problem.row_error(o) > ROW_FACTOR or problem.lse_error(lse) > sm80.LSE_TOLERANCE:
                return WRONG
            if wrong := problem.needed().wrong(report):
                return wrong
        return ""

    return Check(kind.__name__, run)


def _lengths(kernel: Kernel, shapes: Iterable[tuple[int, int]]) -> Iterator[Check]:
    config: Any = kernel.config
    for causal, (rows, keys) in itertools.product((False, True), shapes):

        def check(rows: int = rows, keys: int = keys, causal: bool = causal) -> None:
            tensors = test_general_forward.draw(config, rows, keys, 2, 1, SEED)
            test_general_forward.check(config, tensors, causal)

        yield through_forward(kernel, f"{rows} x {keys}, causal {causal}", check)


def _rare(kernel: Kernel, name: str) -> tuple[Check, ...]:
    """tests/forward/test_rare_shapes.py"""

    def far(tensor: str, axis: int) -> None:
        rare.test_far_strides(name, tensor, axis, SEED)

    places = itertools.product("qkvo", range(3))
    return (
        through_forward(kernel, "40 heads", lambda: rare.test_more_than_32_kv_heads(name, SEED)),
        *(
            through_forward(kernel, f"{t} strides {axis}", functools.partial(far, t, axis))
            for t, axis in places
        ),
        through_forward(
            kernel,
            "far rows that see nothing",
            lambda: rare.test_rows_far_apart_that_see_nothing(name, SEED),
        ),
        through_forward(kernel, "diagonals", lambda: rare.test_every_diagonal(name, SEED)),
    )


def _blind(kernel: Kernel) -> Check:
    config: Any = kernel.config
    return through_forward(
        kernel, "rows that see nothing",
        lambda: test_general_forward.test_rows_that_see_nothing(config, SEED),
    )  # fmt: skip


def _like_ncu(kernel: Kernel, suffix: str) -> Check:
    """Matrix instructions, loads, copies and bank conflicts, as a GPU counted them."""

    def run(launched: Any) -> str:
        with mock.patch.object(ncu_counts, "compile_kernel", lambda ptx, name: launched):
            ncu_counts.classes_of.cache_clear()
            try:
                test_attention_counts.test_equal_to_ncu(suffix)
            finally:
                ncu_counts.classes_of.cache_clear()
        return ""

    return Check("counts of ncu", run)


def sm80_stages() -> list[Stage]:
    ampere = Kernel.of(_named(rare.AMPERE), Variant.ANY)
    whole = Kernel.of(_named(rare.AMPERE), Variant.WHOLE)
    wide, lazy, registers = (Kernel.of(c, Variant.ANY) for c in sm80.FAMILIES[0].general)
    stages = [
        Stage(
            ampere,
            (_right(sm80.general_problems, ampere.config), *_lengths(ampere, [(113, 127)])),
        ),
        *(
            Stage(kernel, (_right(sm80.general_problems, kernel.config),))
            for kernel in (lazy, registers, wide)
        ),
        Stage(
            whole,
            (_right(sm80.whole_problems, whole.config),
             through_forward(whole, "batch and heads",
                             lambda: test_emulated_forward.check(whole.config, SEED))),  # type: ignore[arg-type]
        ),
        Stage(ampere, (*_lengths(ampere, test_general_forward.SHAPES), _blind(ampere),
                       *_rare(ampere, rare.AMPERE)), thorough=True),
    ]  # fmt: skip
    ahead = Kernel.of(_named(AHEAD), Variant.WHOLE)
    stages.append(Stage(ahead, (_right(sm80.whole_problems, ahead.config),), thorough=True))
    for suffix in ("async_eager_swizzled_load_0_2_2_optsoftmax", "async_load_0_0_0"):
        kernel = Kernel.of(ncu_counts.config_named(suffix), Variant.WHOLE)
        checks = (_right(sm80.whole_problems, kernel.config), _like_ncu(kernel, suffix))
        stages.append(Stage(kernel, checks, thorough=True))
    return stages


# --- the Hopper family ----------------------------------------------------------------------------


def _hopper(kernel: Kernel) -> tuple[Check, ...]:
    config: Any = kernel.config
    made = functools.cache(lambda: problems(config, SEED))

    def in_order(launched: Any) -> str:
        return _first_wrong(launched, itertools.product(made(), schedules(SEED)))

    def early(launched: Any) -> str:
        return _first_wrong(launched, itertools.product(made(), sm90.EARLY))

    return Check("problems", in_order), Check("early loads", early)


def _crowded(kernel: Kernel) -> tuple[Check, ...]:
    config: Any = kernel.config
    made = functools.cache(lambda: crowded_problems(config, SEED))

    def in_order(launched: Any) -> str:
        return _first_wrong(
            launched, itertools.product(made()[:1], (*schedules(SEED), *sm90.EARLY))
        )

    def at_random(launched: Any) -> str:
        random = LaunchOptions(lane_order="random")
        runs = (
            (made()[n % 2], replace(random, seed=n, early_loads=n % 4 >= 2)) for n in range(RANDOM)
        )
        return _first_wrong(launched, runs)

    return Check("crowded", in_order), Check(f"crowded, {RANDOM} schedules", at_random)


def _first_wrong(launched: Any, runs: Iterable[tuple[HopperProblem, LaunchOptions]]) -> str:
    for problem, options in runs:
        if found := problem.wrong(*problem.run(launched, options)):
            return found.partition(":")[0]
    return ""


def _forward_hopper(kernel: Kernel) -> Iterator[Check]:
    config: Any = kernel.config
    for shape, causal in test_hopper_forward.PROBLEMS:

        def check(shape: Any = shape, causal: bool = causal) -> None:
            test_hopper_forward.check(config, shape, causal, SEED)

        yield through_forward(kernel, f"{shape}, causal {causal}", check)
    yield through_forward(
        kernel, "strides", lambda: test_hopper_forward.test_strides_of_every_tensor(SEED)
    )


def _growing(name: str) -> Stage:
    kernel = Kernel.of(_named(name))
    checks = tuple(
        through_forward(kernel, f"growing scores, causal {causal}",
                        functools.partial(rare.test_scores_that_outgrow_what_was_assumed, name,
                                          causal, SEED))
        for causal in (False, True)
    )  # fmt: skip
    return Stage(kernel, checks, thorough=True)


def _counted(
    config: HopperForwardKernelConfig, wrong: Callable[[HopperForwardKernelConfig, Any, int], str]
) -> Stage:
    check = Check(wrong.__name__, lambda launched: wrong(config, launched, SEED), (_COUNTS,))
    return Stage(Kernel.of(config), (check,), thorough=True)


def _scores(name: str, *checks: tuple[str, Callable[[], object]]) -> Stage:
    kernel = Kernel.of(_named(name))
    made = (replace(through_forward(kernel, *check), files=(_SCORES,)) for check in checks)
    return Stage(kernel, tuple(made), thorough=True)


def sm90_stages() -> list[Stage]:
    large = [
        (distribution, functools.partial(scores.test_large_scores, name, distribution, SEED))
        for name in (rare.HOPPER, rare.THREE_GROUPS)
        for distribution in ("large", "large-alike")
    ]
    masks = "masks in parts", lambda: scores.test_masks_that_end_in_either_part(SEED)
    small = Kernel.of(_named(rare.HOPPER))
    kernels, ahead = [Kernel.of(config) for config in sm90.CONFIGS], Kernel.of(sm90.AHEAD)
    return [
        *(Stage(kernel, _hopper(kernel)) for kernel in kernels),
        Stage(small, tuple(_forward_hopper(small))),
        *(Stage(kernel, _crowded(kernel), thorough=True) for kernel in (ahead, *kernels)),
        Stage(small, _rare(small, rare.HOPPER), thorough=True),
        *(_growing(name) for name in (rare.THREE_GROUPS, rare.STAGED)),
        _counted(sm90.LAZY, rare_runs.wrong_lag),
        _counted(sm90.TWO_Q, rare_runs.wrong_votes),
        _scores(rare.HOPPER, *large[:2]),
        _scores(rare.THREE_GROUPS, *large[2:], masks),
    ]
