"""Every kernel compiles with NVRTC, and to the machine code that nvcc makes."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flash_helpers.build.kernel_nvrtc import FLAGS, cached_nvrtc_cubin, nvrtc_cubin
from flash_helpers.build.kernel_ptx import kernel_cubin
from flash_helpers.codegen import render_kernel
from flash_helpers.codegen.sources import include_dirs
from flash_helpers.compilers import nvrtc as nvrtc_module
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvrtc import Nvrtc, find_nvrtc
from flash_helpers.compilers.toolchain import find_nvcc
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sets import get_kernels_to_build
from flash_lab.sass.listing import Usage
from flash_lab.sass.sources import Code
from flash_lab.waves.occupancy import occupancy

ALL = get_kernels_to_build("all")
BODIES = {config.header(): config for config in ALL}
HEADERS = [path for folder in include_dirs() for path in folder.rglob("flash/**/*.*h")]
_NEWER = "__builtin_bit_cast"
FAMILIES = {config.FAMILY: config for config in ALL if "previous" not in config.header()}


def architecture_of(config: KernelConfig) -> str:
    if config.FAMILY == "sm80_bwd_fused":
        return "sm_90"  # the first with the shared memory that it needs
    return config.PTX_ARCHITECTURE.replace("compute", "sm")


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return find_nvrtc()


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_the_kernels_of_each_family(config: KernelConfig, nvrtc: Nvrtc) -> None:
    for variant in config.built_variants():
        cubin = cached_nvrtc_cubin(nvrtc, config, architecture_of(config), variant)
        assert cubin.startswith(b"\x7fELF")
        assert config.symbol(variant).encode() in cubin


@pytest.mark.parametrize("config", FAMILIES.values(), ids=FAMILIES)
def test_its_headers_need_no_builtins_of_newer_releases(config: KernelConfig, nvrtc: Nvrtc) -> None:
    """NVRTC 12.1, which PyTorch 2.4 brings, has not even __builtin_bit_cast."""
    lines = render_kernel(config, config.first_variant()).splitlines()
    headers = [line for line in lines if line.startswith("#include")]
    names = {name for path in HEADERS for name in re.findall(r"__builtin_\w+", path.read_text())}
    lacking = [f"-D{name}=nvrtc_12_1_has_no{name}" for name in sorted(names | {_NEWER})]
    folders = [f"-I{folder}" for folder in include_dirs()]
    options = [*FLAGS, f"-arch={architecture_of(config)}", *folders, *lacking]
    assert headers and nvrtc.cubin("\n".join(headers), "headers.cu", options)
    with pytest.raises(RuntimeError, match="nvrtc_12_1_has_no"):
        nvrtc.cubin(f"constexpr float x = {_NEWER}(float, 1u);", "newer.cu", options)


@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
def test_the_kernels_of_each_body(body: str, nvrtc: Nvrtc) -> None:
    for config in (config for config in ALL if config.header() == body):
        for variant in config.built_variants():
            assert nvrtc_cubin(nvrtc, config, architecture_of(config), variant)


@pytest.mark.parametrize("family, variant", [("sm80", Variant.ANY), ("sm90_bwd", Variant.KEYS)])
def test_the_machine_code_is_that_of_nvcc(
    family: str, variant: Variant, nvrtc: Nvrtc, tmp_path: Path
) -> None:
    """But that NVRTC takes addresses in shared memory from 64-bit ones, whose offsets the Hopper
    families' first instructions then add themselves."""
    ours, theirs = both_codes(family, variant, nvrtc, tmp_path)
    assert ours.usage == theirs.usage  # registers, shared memory, spills
    if not family.startswith("sm90"):
        assert instructions(ours) == instructions(theirs)


# What addresses are computed, moved and shared out with, of a thread's or in a warp's registers.
_OF_ADDRESSES = {
    "IADD3", "IMAD", "LDC", "LEA", "LOP3", "MOV", "R2UR", "S2R", "S2UR", "SHF", "UIADD3", "UIMAD",
    "ULDC", "ULEA", "ULOP3", "UMOV", "USHF", "VIADD", "VIMNMX", "VOTEU",
}  # fmt: skip
# What says whether a thread or a warp does something, and sets registers to zero.
_OF_CHOICES = {"BRA", "CS2R", "ISETP", "PLOP3", "SEL", "UISETP", "USEL"}
# Where lanes come together, if ptxas does not see that an address is the same in all of them; and
# what fills the last line.
_OF_NO_ACCOUNT = {"BSSY", "BSYNC", "NOP", "WARPSYNC"}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_machine_code_of_each_kernel(family: str, nvrtc: Nvrtc, tmp_path: Path) -> None:
    """The same instructions, or the same but for a few that compute addresses and choose: the same
    copies, matrix products, exponentials, barriers and memory, nothing spilled, and registers for
    as many thread blocks. NVRTC's addresses in shared memory have 64 bits, nvcc's 32."""
    config = FAMILIES[family]
    for variant in config.built_variants():
        ours, theirs = both_codes(family, variant, nvrtc, tmp_path)
        one, other = instructions(ours), instructions(theirs)
        if one == other:
            assert ours.usage == theirs.usage
            continue
        assert "serve" in family or family == "sm80_bwd_fused" or family.startswith("sm90")
        assert kinds(ours) == kinds(theirs), variant
        assert abs(len(one) - len(other)) < 0.01 * len(other)
        for mine, nvcc in zip(ours.usage.values(), theirs.usage.values(), strict=True):
            assert blocks(config, variant, mine) == blocks(config, variant, nvcc)
            assert replace(mine, registers=0) == replace(nvcc, registers=0)


def blocks(config: KernelConfig, variant: Variant, usage: Usage) -> int:
    """How many thread blocks of the kernel a multiprocessor has registers for."""
    major, minor = re.findall(r"\d", usage.architecture)
    capability = int(major), int(minor)
    found = occupancy(capability, config.threads_of(variant), usage.registers, 0)
    return found.limits["registers"]


def kinds(code: Code) -> Counter[str]:
    """How many instructions of each kind there are, of those that neither compute addresses nor
    choose."""
    (listing,) = code.listings
    found = Counter(instruction.opcode for instruction in listing.instructions)
    left_out = _OF_ADDRESSES | _OF_CHOICES | _OF_NO_ACCOUNT
    return Counter(
        {name: count for name, count in found.items() if name.split(".")[0] not in left_out}
    )


def both_codes(family: str, variant: Variant, nvrtc: Nvrtc, folder: Path) -> tuple[Code, Code]:
    """NVRTC's and nvcc's."""
    release = ".".join(map(str, find_nvcc().release))
    if release != nvrtc.version:
        pytest.skip(f"nvcc is of CUDA {release}, NVRTC of {nvrtc.version}: code differs by release")
    config = FAMILIES[family]
    architecture = architecture_of(config)
    cubin = folder / f"{variant.value}.cubin"
    cubin.write_bytes(cached_nvrtc_cubin(nvrtc, config, architecture, variant))
    return Code((cubin,)), Code((kernel_cubin(config, architecture, variant),))


def instructions(code: Code) -> list[str]:
    (listing,) = code.listings
    return [str(instruction) for instruction in listing.instructions]


def test_messages_name_the_source_and_the_line(nvrtc: Nvrtc) -> None:
    with pytest.raises(RuntimeError, match=r'kernel\.cu\(2\): error: identifier "y" is undefined'):
        nvrtc.cubin("\n__device__ int x = y;", "kernel.cu", ["-arch=sm_80"])


def test_the_library_of_a_toolkit(nvrtc: Nvrtc, tmp_path: Path, alone: None) -> None:
    (tmp_path / "lib64").symlink_to(nvrtc.path.parent)
    found = find_nvrtc({"CUDA_HOME": str(tmp_path)})
    assert (found.path, found.version, found.source) == (nvrtc.path, nvrtc.version, "CUDA_HOME")


def test_no_library_says_where_it_was_looked_for(tmp_path: Path, alone: None) -> None:
    folder = tmp_path / "lib64"
    folder.mkdir()
    (folder / "libnvrtc.so.99").write_text("cut short")
    with pytest.raises(BuildError) as found:
        find_nvrtc({"CUDA_PATH": str(tmp_path)})
    message = str(found.value)
    assert str(folder) in message and "pip install nvidia-cuda-nvrtc" in message
    assert "libnvrtc.so.99 cannot be loaded" in message


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No installed packages, no toolkit in its usual place."""
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(nvrtc_module, "USUAL_FOLDER", tmp_path / "none")
