"""Which kernel is chosen where some could be compiled on first use: of the family that is preferred
on the GPU, and one of the build wherever that has one of them that serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from flash_attention import KernelNotBuiltError, dispatch, interface, jit, tuned_config, tuning
from flash_attention import library as loader
from flash_helpers.base.dtypes import DType
from flash_helpers.compilers.errors import BuildError
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.sets import get_kernels_to_build
from flash_lab.waves.kernels import of_driver

GPU = torch.device("cuda", 0)
ALL = get_kernels_to_build("all")
FORWARD = AttentionProblem(DType.FP16, 1, 1000, 1000, 2, 1, 128)
BACKWARD = AttentionProblem(DType.FP16, 1, 1000, 1000, 2, 1, 128, gradients=True)
Build = Callable[[Sequence[KernelConfig]], list[str]]


def of(family: str, d_head: int = 128) -> list[KernelConfig]:
    return [
        c
        for c in ALL
        if (c.FAMILY, c.dtype, c.d_head) == (family, DType.FP16, d_head)
        and (c.GRADIENTS or Variant.ANY in c.built_variants())
        and not c.kept_for_study()
    ]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Puts a build in place, on a machine with an H200 and NVRTC as far as Python sees; its result
    gets a line whenever NVRTC is looked for."""
    asked: list[str] = []
    monkeypatch.delenv(jit.VARIABLE, raising=False)
    monkeypatch.delenv(tuning.TABLE_VARIABLE, raising=False)
    monkeypatch.setattr(tuning, "user_table", lambda: Path("/nowhere"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H200")
    monkeypatch.setattr(jit, "find_nvrtc", lambda: asked.append("NVRTC"))

    def put(configs: Sequence[KernelConfig]) -> list[str]:
        configs = sorted(configs, key=lambda c: c.kernel_name())
        library = SimpleNamespace(
            kernel_names=lambda: [c.kernel_name() for c in configs],
            variants=lambda kernel_id: [v.value for v in configs[kernel_id].built_variants()],
            kernel_set=lambda: "some",
            device_count=lambda: 1,
        )
        for module in (interface, tuning, loader):
            monkeypatch.setattr(module, "load_library", lambda: library)
        forget()
        return asked

    def forget() -> None:
        jit.forget()
        interface.kernel_ids.cache_clear()
        tuning.built_variants.cache_clear()

    yield put
    forget()


@pytest.mark.parametrize(
    ("problem", "family"),
    [(FORWARD, "sm90"), (BACKWARD, "sm90_bwd_fused")],
    ids=["forward", "backward"],
)
def test_a_kernel_of_the_build_that_serves_is_chosen(
    problem: AttentionProblem, family: str, build: Build
) -> None:
    """NVRTC is not even looked for."""
    built = of(family)[:1]
    asked = build([*built, *of("sm80"), *of("sm80_bwd")])
    assert dispatch.choose(problem, GPU) in built
    assert asked == []


def test_each_kernel_of_the_build_is_chosen_where_it_is_alone(build: Build) -> None:
    for config in of("sm90"):
        asked = build([config, *of("sm80", 64)])
        assert dispatch.choose(FORWARD, GPU) == config == tuned_or(config)
        assert asked == []


@pytest.mark.parametrize("problem", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_the_family_for_this_gpu_is_compiled_though_the_build_has_another(
    problem: AttentionProblem, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a build without it would be slow in silence; where nothing is compiled it is what there
    is."""
    others = of("sm80_bwd" if problem.gradients else "sm80")
    build(ALL)
    best = dispatch.choose(problem, GPU)
    build(others)
    assert dispatch.choose(problem, GPU) == best and best not in others
    monkeypatch.setenv(jit.VARIABLE, "0")
    assert dispatch.choose(problem, GPU) in others
    monkeypatch.setenv(jit.VARIABLE, "1")
    monkeypatch.setattr(jit, "find_nvrtc", no_nvrtc)
    jit.forget()
    assert dispatch.choose(problem, GPU) in others


def tuned_or(config: KernelConfig) -> KernelConfig:
    """What the tables say of the build; they need not know its kernel."""
    try:
        return tuned_config("fp16", 128, 1000, device=0, on_first_use=False)
    except LookupError:
        return config


@pytest.mark.parametrize(
    ("problem", "family"),
    [(FORWARD, "sm90"), (BACKWARD, "sm90_bwd_fused")],
    ids=["forward", "backward"],
)
@pytest.mark.parametrize("others", [[], of("sm80", 64)], ids=["empty", "of another size"])
def test_where_the_build_has_none_any_is_chosen_as_if_all_were_built(
    problem: AttentionProblem, family: str, others: list[KernelConfig], build: Build
) -> None:
    build(ALL)
    best = dispatch.choose(problem, GPU)
    asked = build(others)
    assert dispatch.choose(problem, GPU) == best
    assert family == best.FAMILY
    assert asked == ["NVRTC"]


def no_nvrtc() -> None:
    raise BuildError("NVRTC was not found")


@pytest.mark.parametrize("problem", [FORWARD, BACKWARD], ids=["forward", "backward"])
@pytest.mark.parametrize("switched_off", [True, False])
def test_where_nothing_is_compiled_that_is_refused(
    problem: AttentionProblem, switched_off: bool, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(of("sm80", 64))
    if switched_off:
        monkeypatch.setenv(jit.VARIABLE, "0")
    else:
        monkeypatch.setattr(jit, "find_nvrtc", no_nvrtc)
    with pytest.raises(KernelNotBuiltError, match="this build has no kernel"):
        dispatch.choose(problem, GPU)


def test_the_tables_are_asked_for_the_build_first(build: Build) -> None:
    build(ALL)
    best = tuned_config("fp16", 128, 4096, device=0)
    slower = tuned_config("fp16", 128, 4096, device=0, family="sm80")
    assert (best.FAMILY, slower.FAMILY) == ("sm90", "sm80")
    asked = build([slower])
    assert tuned_config("fp16", 128, 4096, device=0) == slower
    assert asked == []
    build([])
    assert tuned_config("fp16", 128, 4096, device=0) == best
    with pytest.raises(LookupError):
        tuned_config("fp16", 128, 4096, device=0, on_first_use=False)


def test_what_the_gpu_cannot_run_is_not_compiled(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    build([])
    assert dispatch.choose(FORWARD, GPU).FAMILY == "sm80"
    with pytest.raises(LookupError):
        tuned_config("fp16", 128, 4096, device=0, family="sm90")


def test_a_tool_that_asks_the_driver_about_a_kernel_has_none_compiled(build: Build) -> None:
    asked = build(of("sm80", 64))
    assert of_driver(of("sm80")[0], Variant.ANY) is None
    assert asked == []
