"""The Hopper family in a build: only for sm_90a, said and counted where it is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flash_helpers.build import driver, report
from flash_helpers.build.architectures import Selection, parse_arch_list
from flash_helpers.build.plan import make_plan
from flash_helpers.compilers.errors import BuildError
from flash_helpers.kernel_configs import get_kernel_configs, known_configs, parse_symbol
from flash_helpers.kernels.sm80_fwd.family import FAMILY as SM80_FORWARD
from flash_helpers.kernels.sm90_fwd.family import FAMILY as SM90_FORWARD

from .conftest import HANGS, Tree, copy_sources
from .remembered_calls import packed
from .remembering import Toolchain
from .test_extension import launch

NVCC_13 = ("80", "86", "90", "100", "120")


# One kernel of the Ampere family (id 0), two of the Hopper family (ids 1 and 2).
BUILD_THREE = """
import dataclasses
from pathlib import Path
from flash_helpers.build import driver
from flash_helpers.build.plan import make_plan
from flash_helpers.kernel_configs import get_kernel_configs
plan = make_plan()
configs = [*plan.configs[:1], *get_kernel_configs("hopper-smoke")[:2]]
driver.CONFIGS_PER_UNIT = 1
parts = driver.InParts(2, Path("parts.json").resolve())
three = dataclasses.replace(plan, configs=tuple(configs))
driver.build_plan(three, parts, [plan.root / "flash_attention"])
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, compilers: Toolchain) -> Tree:
    """A build of both families for two architectures, in two parts."""
    tree = copy_sources(tmp_path_factory.mktemp("both families") / "tree", compilers)
    environ = tree.environ({"KERNELS": "all", "TORCH_CUDA_ARCH_LIST": "8.0;9.0a", "MAX_JOBS": "2"})
    command = [sys.executable, "-c", BUILD_THREE]
    done = subprocess.run(
        command, cwd=tree.root, env=environ, capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return tree


@pytest.mark.parametrize(
    ("text", "ampere", "hopper"),
    [
        ("8.0;9.0a", ["sm_80", "sm_90a"], ["sm_90a"]),
        ("9.0a+PTX", ["sm_90a+PTX"], ["sm_90a"]),
        ("8.0;9.0", ["sm_80", "sm_90"], []),
        ("10.0a", ["sm_100a"], []),
    ],
)
def test_what_a_family_is_compiled_for(text: str, ampere: list[str], hopper: list[str]) -> None:
    selection = Selection(parse_arch_list(text, NVCC_13), "a test")
    assert selection.of_family(SM80_FORWARD).names() == ampere
    assert selection.of_family(SM90_FORWARD).names() == hopper


def test_without_sm_90a_the_family_is_left_out_and_counted(
    needs_compilers: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0")
    monkeypatch.setenv("KERNELS", "all")
    plan = make_plan()
    words = ("hopper", "hopper-bwd", "hopper-serve", "hopper-mla")
    n_hopper = sum(len(get_kernel_configs(word)) for word in words)
    families = {
        "sm80", "sm80_bwd", "sm80_bwd_fused", "sm80_serve", "sm80_bwd_serve", "sm80_serve_mla",
    }  # fmt: skip
    assert {config.FAMILY for config in plan.configs} == families
    assert len(plan.skipped) == n_hopper and len(plan.configs) + n_hopper == len(
        get_kernel_configs("all")
    )
    monkeypatch.setattr(driver, "build_locked", lambda plan, lock, parts: [])
    driver.build_plan(plan)
    said = capsys.readouterr().out
    assert f"{len(plan.configs)} kernels (KERNELS=all)" in said
    assert f"left out: {n_hopper} kernels of KERNELS=all need sm_90a" in said
    assert "sm_80, sm_90" in said and "TORCH_CUDA_ARCH_LIST=9.0a" in said


def test_nothing_to_build_is_an_error(
    needs_compilers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    monkeypatch.setenv("KERNELS", "hopper")
    with pytest.raises(BuildError, match=r"need sm_90a, which is not among sm_80 .*=9\.0a"):
        make_plan()


def test_each_kernel_is_compiled_for_its_family_s_architectures(both: Tree) -> None:
    names = both.run_with_extension("print(*_C.kernel_names())").split()
    hopper = sorted(c.kernel_name() for c in get_kernel_configs("hopper-smoke")[:2])
    assert names == [*(c.kernel_name() for c in get_kernel_configs("all")[:1]), *hopper]
    units = [path.name for path in (both.directory / "generated").glob("*.cu")]
    rows = report.collect(both.directory, [f"generated/{unit}" for unit in units])
    found = {(row.usage.kernel, row.usage.architecture) for row in rows}
    assert {arch for name, arch in found if name == names[0]} == {"sm_80", "sm_90a"}
    assert {(name, arch) for name, arch in found if name in hopper} == {
        (name, "sm_90a") for name in hopper
    }
    for row in rows:
        if row.usage.kernel in hopper:
            assert not row.usage.spills and row.usage.stack_bytes == 0
            assert row.dynamic_shared_bytes > 48 * 1024


def test_cmake_tries_no_compiler(both: Tree) -> None:
    said = (both.directory / "configure.log").read_text()
    assert "compiler identification" in said and "ABI" not in said


def test_a_part_may_hold_one_family_alone(both: Tree) -> None:
    whole = both.run_with_extension("print(_C.fingerprint(), *_C.kernel_names())").split()
    found = []
    for item in json.loads((both.root / "parts.json").read_text()):
        code = "print(_C.fingerprint(), *_C.kernel_names())"
        fingerprint, *names = both.run_with_extension(code, Path(item["library"])).split()
        assert fingerprint == whole[0]
        assert sorted(parse_symbol(name)[0].short_form() for name in names) == sorted(
            item["kernels"]
        )
        found.append(names)
    assert sorted(name for names in found for name in names) == sorted(whole[1:])
    assert [len(names) for names in found] == [2, 1]
    assert {parse_symbol(name)[0].FAMILY for name in found[1]} == {"sm90"}


STRIDES = {f"{tensor}_strides": (0, 128, 128) for tensor in "qkvo"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"softmax_scale": 0.0}, "softmax_scale = 0.000000: this family takes positive scales"),
        ({"softmax_scale": -1.0}, "this family takes positive scales"),
        ({"softmax_scale": float("nan")}, "this family takes positive scales"),
        ({"seqlen_q": 2**31 - 1}, "seqlen_q = 2147483647: expected 0 to"),
        ({"seqlen_k": -1}, "seqlen_k = -1: expected 0 to"),
        ({"q": 0}, "q is null"),
        ({"k": 0}, "k is null"),
        ({"o": 8}, "o is not aligned to 16 bytes"),
        ({"v_strides": (0, 132, 128)}, "v_stride_seq = 132 elements: expected a multiple of 8"),
        ({"k_strides": (2**39, 128, 128)}, "a stride is 549755813888 elements"),
        ({"q_strides": (-128, 128, 128)}, "a stride is -128 elements"),
        ({"batch": 2**31 - 1, "n_heads_q": 2}, "* n_heads_q * batch exceed 2147482623"),
        (
            {"seqlen_q": 2**30, "seqlen_k": 2**30, "causal": True},
            "causal: seqlen_q + seqlen_k = 2147483648: expected at most",
        ),
    ],
)
def test_arguments_that_the_family_does_not_take(
    both: Tree, changes: dict[str, object], expected: str
) -> None:
    said = launch(both, f"1, {packed(**{**STRIDES, **changes})}, 0, 0")
    assert "ValueError" in said and expected in said, said


@pytest.mark.parametrize(
    "changes", [{"seqlen_q": 1, "seqlen_k": 203}, {"seqlen_k": 0, "k": 0, "v": 0}, {"causal": True}]
)
def test_good_arguments_reach_the_driver(both: Tree, changes: dict[str, object]) -> None:
    prepare = "import os\nif _C.device_count(): print('there is a device'); sys.exit(0)"
    said = launch(both, f"1, {packed(**{**STRIDES, **changes})}, 0, 0", prepare)
    assert "there is a device" in said or "CudaError" in said, said


def test_no_spill_of_the_family_is_allowed() -> None:
    names = [c.kernel_name() for c in known_configs() if c.FAMILY == "sm90"]
    assert names
    for entry in report.load_allowed_spills():
        assert not any(entry.names(name) for name in names), entry.pattern
