"""TORCH_CUDA_ARCH_LIST as torch reads it, the GPU present, and the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_helpers.build.architectures import (
    Architecture,
    parse_arch_list,
    parse_compute_capabilities,
    select,
)
from flash_helpers.compilers.errors import BuildError

NVCC_13 = ("75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121")


def names(text: str) -> list[str]:
    return [str(architecture) for architecture in parse_arch_list(text, NVCC_13)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9.0a", ["sm_90a"]),
        ("8.0;9.0+PTX", ["sm_80", "sm_90+PTX"]),
        ("8.0 9.0a", ["sm_80", "sm_90a"]),
        ("9.0a,8.0", ["sm_80", "sm_90a"]),
        (" 8.6 ; 8.0;; ", ["sm_80", "sm_86"]),
        ("8.0;8.0+PTX;8.0", ["sm_80+PTX"]),
        ("Ampere", ["sm_80", "sm_86+PTX"]),
        ("Hopper;Ada", ["sm_89+PTX", "sm_90+PTX"]),
        ("Blackwell", ["sm_100", "sm_103", "sm_120", "sm_121+PTX"]),
        ("10.0a", ["sm_100a"]),
    ],
)
def test_lists_that_torch_accepts(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ";", "sm_80", "80", "8", "8.0a", "9.0b", "9.0+ptx", "hopper", "9.0;x", "８.0", "9.00"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BuildError):
        names(text)


def test_messages_name_what_is_allowed() -> None:
    with pytest.raises(BuildError, match=r"'hopper'.*did you mean 'Hopper'.*8\.0, 8\.6.*9\.0a"):
        names("hopper")
    with pytest.raises(BuildError, match=r"'7\.5' cannot be built.*need 8\.0.*allowed are 8\.0"):
        names("7.5")
    with pytest.raises(BuildError, match=r"'10\.1' cannot be built.*no such target.*12\.1a"):
        names("10.1")
    with pytest.raises(BuildError, match="no such target"):
        parse_arch_list("9.0a", ("75", "80"))


def test_flags() -> None:
    (plain,) = parse_arch_list("9.0a", NVCC_13)
    assert plain.gencode() == ["-gencode=arch=compute_90a,code=sm_90a"]
    (with_ptx,) = parse_arch_list("9.0+PTX", NVCC_13)
    assert with_ptx.gencode() == [
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


def environment(folder: Path, answer: str, status: int = 0) -> dict[str, str]:
    """A PATH with an nvidia-smi that gives this answer."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{answer}'\nexit {status}\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("9.0\\n", ["sm_90a"]),
        ("8.0\\n9.0\\n8.0\\n", ["sm_80", "sm_90a"]),
        ("8.6\\n", ["sm_86"]),
        ("12.0\\n", ["sm_120a"]),
        ("7.5\\n9.0\\n", ["sm_90a"]),
    ],
)
def test_the_gpu_present(tmp_path: Path, answer: str, expected: list[str]) -> None:
    selection = select(NVCC_13, environment(tmp_path, answer))
    assert selection.names() == expected
    assert selection.reason == "the GPU present"


def test_the_variable_wins_over_the_gpu(tmp_path: Path) -> None:
    environ = environment(tmp_path, "9.0\\n") | {"TORCH_CUDA_ARCH_LIST": "8.0"}
    assert select(NVCC_13, environ).architectures == (Architecture(8, 0),)
    assert select(NVCC_13, environ | {"TORCH_CUDA_ARCH_LIST": "native"}).names() == ["sm_90a"]


def test_without_a_gpu_the_default(tmp_path: Path) -> None:
    for environ in ({"PATH": ""}, environment(tmp_path, "No devices were found", 6)):
        selection = select(NVCC_13, environ)
        assert selection.names() == ["sm_80", "sm_90a"]
        assert "default" in selection.reason
    with pytest.raises(BuildError, match="reports no GPU"):
        select(NVCC_13, {"PATH": "", "TORCH_CUDA_ARCH_LIST": "native"})


def test_a_gpu_newer_than_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"sm_90a.*no such target"):
        select(("75", "80"), environment(tmp_path, "9.0\\n"))


def test_other_lines_of_nvidia_smi_are_no_capabilities() -> None:
    assert parse_compute_capabilities("[N/A]\n9.0\nWarning: 1.2.3\n") == [(9, 0)]
