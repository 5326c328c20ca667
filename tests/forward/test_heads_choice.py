"""Which kernels take head dimensions that no dense kernel has, on which GPU, and of which build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from flash_attention import KernelNotBuiltError, dispatch, heads, jit
from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sets import get_kernels_to_build

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
ALL = get_kernels_to_build("all")
EVERY = frozenset(config.FAMILY for config in ALL)
# Puts a GPU of this capability and a build of these families in place, without NVRTC.
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    def not_tuned(*_: object, **__: object) -> None:
        raise LookupError

    def put(capability: tuple[int, int], families: frozenset[str] = EVERY) -> None:
        def built(config: KernelConfig, variant: Variant) -> int | None:
            return 0 if config.FAMILY in families else None

        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(jit, "refusal", lambda: "nothing is compiled here")
        monkeypatch.setattr(dispatch, "tuned_config", not_tuned)
        monkeypatch.setattr(
            dispatch, "available_kernels", lambda: [c for c in ALL if c.FAMILY in families]
        )
        monkeypatch.setattr(heads, "built_kernel_id", built)
        heads.forget()

    monkeypatch.setattr(jit, "is_on", lambda: False)
    yield put
    heads.forget()


def of(d: int, d_v: int = 0, queries: int = 1000, **options: Any) -> AttentionProblem:
    return AttentionProblem(DType.BF16, 2, queries, 1000, 4, 2, d, d_v, **options)


def is_taken(problem: AttentionProblem, device: torch.device) -> bool:
    try:
        heads.kernels(problem, device)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("problem", "width"),
    [(of(64), 64), (of(8), 64), (of(36), 64), (of(72), 96), (of(80, 40), 96), (of(112), 128),
     (of(128, 64), 128), (of(160), 192), (of(192), 192), (of(200), 256), (of(256, 200), 256),
     # As they lie: by the Hopper serving kernels, or where a copy would be most of the work.
     (of(192, 128), None), (of(192, 128, queries=1), None), (of(80, queries=16), None),
     (of(80, queries=17), 96)],
    ids=str,
)  # fmt: skip
def test_copies_for_kernels_that_the_gpu_prefers(
    problem: AttentionProblem, width: int | None, machine: Machine
) -> None:
    machine((9, 0))
    assert heads.dense_width(problem, GPU) == width


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (12, 0)])
def test_no_copies_elsewhere(capability: tuple[int, int], machine: Machine) -> None:
    machine(capability)
    for problem in (of(8), of(36), of(80), of(96), of(128, 64), of(160), of(192, 128), of(256)):
        assert heads.dense_width(problem, GPU) is None
        assert is_taken(problem, GPU)
    assert [heads.dense_width(of(d), GPU) for d in (64, 128)] == [64, 128]


@pytest.mark.parametrize(
    ("problem", "width"),
    [(of(64), 64), (of(96), 96), (of(192), 192), (of(40), None), (of(80), None), (of(96, 64), None),
     (of(160), None), (of(256, 128), None)],
    ids=str,
)  # fmt: skip
def test_the_emulator_has_no_need_of_copies(problem: AttentionProblem, width: int | None) -> None:
    assert heads.dense_width(problem, CPU) == width and is_taken(problem, CPU)


def test_what_the_build_has_is_taken(machine: Machine) -> None:
    machine((9, 0), frozenset({"sm80_serve"}))
    assert heads.dense_width(of(80), GPU) is None
    machine((9, 0), frozenset({"sm90"}))
    assert heads.dense_width(of(80, queries=1), GPU) == 96
    assert is_taken(of(64), GPU) and is_taken(of(80, queries=1), GPU)
    machine((8, 0), frozenset({"sm80"}))
    assert heads.dense_width(of(80), GPU) == 128
    with pytest.raises(KernelNotBuiltError, match="not in this build, and nothing is compiled"):
        heads.dense_width(of(160), GPU)
    assert not is_taken(of(160), GPU)


def test_an_old_gpu_is_named(machine: Machine) -> None:
    machine((7, 5))
    with pytest.raises(ValueError, match=r"needs compute capability 8.0, and this GPU has 7.5"):
        heads.dense_width(of(80), GPU)
    assert not is_taken(of(80), GPU)


@pytest.mark.parametrize(
    ("capability", "d", "deterministic", "family", "width"),
    [((9, 0), 8, False, "sm90_bwd_fused", 64), ((9, 0), 80, False, "sm90_bwd_fused", 96),
     ((9, 0), 80, True, "sm90_bwd_fused", 96), ((9, 0), 160, False, "sm90_bwd", 192),
     ((9, 0), 256, False, "sm90_bwd", 256), ((8, 0), 36, False, "sm80_bwd", 64),
     ((8, 6), 80, True, "sm80_bwd", 96), ((8, 0), 160, False, "sm80_bwd", 192),
     ((12, 0), 200, True, "sm80_bwd", 256)],
)  # fmt: skip
def test_gradients(
    capability: tuple[int, int], d: int, deterministic: bool, family: str, width: int,
    machine: Machine,
) -> None:  # fmt: skip
    machine(capability)
    problem = of(d, gradients=True, deterministic=deterministic)
    found = heads.gradient_kernels(problem, GPU)
    assert (found.FAMILY, found.d_head) == (family, width) and is_taken(problem, GPU)


def test_gradients_of_what_the_build_has(machine: Machine) -> None:
    problem = of(80, gradients=True)
    machine((8, 0), frozenset({"sm80_bwd_serve"}))
    assert heads.gradient_kernels(problem, GPU).FAMILY == "sm80_bwd_serve"
    machine((8, 0), frozenset({"sm80", "sm80_serve"}))
    with pytest.raises(KernelNotBuiltError, match="is not in this build"):
        heads.gradient_kernels(problem, GPU)
    assert not is_taken(problem, GPU)


def test_gradients_in_the_emulator() -> None:
    """Where the Hopper families' kernels take longest."""
    found = [heads.gradient_kernels(of(d, gradients=True), CPU).FAMILY for d in (36, 80, 160)]
    assert found == ["sm80_bwd", "sm80_bwd", "sm80_bwd"]
