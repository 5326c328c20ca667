"""Variables and tools that answer nonsense, nothing, or not at all: one sentence, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flash_helpers.build import architectures, parallelism
from flash_helpers.build.plan import make_plan
from flash_helpers.compilers import programs
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.programs import find_tool
from flash_helpers.compilers.toolchain import find_host_compiler, find_nvcc

from .conftest import ROOT
from .test_toolchain import make_nvcc

MANY_DIGITS = "9" * 5000  # more than int() takes
PATH = {"PATH": "/usr/bin:/bin"}
# What a program may do instead of answering.
NONSENSE = {
    "fails": "exit 1",
    "prints nothing": "exit 0",
    "prints blanks": "echo; echo ' '",
    "prints binary data": r"printf '\377\376\000\001\377\n'",
    "has too many digits": f"echo 'release {MANY_DIGITS}.0, V{MANY_DIGITS}.0.0 {MANY_DIGITS}.1'",
    "has strange digits": "echo 'release ١٣.٠, V١٣.٠.٨٨ g++ ²'",
    "hangs": "sleep 600",
    "reads its input": "read line; echo $line",
    "kills itself": "kill -9 $$",
}


@pytest.fixture(params=NONSENSE)
def nonsense(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A program that does one of these."""
    monkeypatch.setattr(programs, "ANSWER_SECONDS", 0.5 if request.param == "hangs" else 60.0)
    return script(tmp_path / "program", NONSENSE[request.param])


def script(path: Path, body: str, first: str = "#!/bin/sh") -> Path:
    path.write_bytes(f"{first}\n{body}\n".encode())
    path.chmod(0o755)
    return path


def test_a_host_compiler(nonsense: Path) -> None:
    with pytest.raises(BuildError, match=r"^\S*program[^\n]*$"):
        find_host_compiler({**PATH, "CXX": str(nonsense)})


def test_nvcc(nonsense: Path) -> None:
    with pytest.raises(BuildError, match=r"^[^\n]*program[^\n]*$"):
        find_nvcc({**PATH, "CUDACXX": str(nonsense)})


def test_targets_of_nvcc(nonsense: Path, tmp_path: Path) -> None:
    """It has a version, but no architectures."""
    nvcc = make_nvcc(tmp_path / "cuda")
    text = nvcc.read_text().replace(
        "--list-gpu-code) printf", f"--list-gpu-code) {nonsense};; -) :"
    )
    nvcc.write_text(text)
    with pytest.raises(BuildError, match=r"^\S+nvcc --list-gpu-code[^\n]*$"):
        print(find_nvcc({**PATH, "CUDACXX": str(nvcc)}).supported_targets)


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_build_tools(nonsense: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = nonsense.rename(nonsense.with_name(name))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tool.parent))
    with pytest.raises(BuildError, match=rf"^\S+{name}[^\n]*$"):
        find_tool(name, PATH)


def test_nvidia_smi(nonsense: Path) -> None:
    """Then there is no GPU."""
    tool = nonsense.rename(nonsense.with_name("nvidia-smi"))
    assert architectures.present_gpus({"PATH": f"{tool.parent}:/usr/bin:/bin"}) == []


@pytest.mark.parametrize(("name", "old"), [("cmake", "3.24.9"), ("ninja", "1.9")])
def test_a_build_tool_that_is_too_old(
    tmp_path: Path, name: str, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / name, f"echo {name} version {old}")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(BuildError, match=rf"is {name} {old}; .* or newer is needed: .*--upgrade"):
        find_tool(name, PATH)


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    broken = script(tmp_path / "g++", "", first="#!/no/such/interpreter")
    for variable, search in (("CXX", find_host_compiler), ("CUDACXX", find_nvcc)):
        with pytest.raises(BuildError, match=rf"^{re.escape(str(broken))} cannot be run: [^\n]+$"):
            search({**PATH, variable: str(broken)})
    script(broken, "\0\1\2", first="\x7fELF")
    with pytest.raises(BuildError, match="cannot be run: Exec format error"):
        find_host_compiler({**PATH, "CXX": str(broken)})


@pytest.mark.parametrize("program", ["/bin/false", "/bin/true", "/bin/cat", "/bin/echo"])
def test_programs_that_are_no_compilers(program: str) -> None:
    with pytest.raises(BuildError, match=rf"^{program} "):
        find_host_compiler({**PATH, "CXX": program})
    with pytest.raises(BuildError, match=rf"{program} "):
        find_nvcc({**PATH, "CUDACXX": program})


def test_a_compiler_without_cxx_20(tmp_path: Path) -> None:
    old = script(
        tmp_path / "clang++", "echo 'clang version 9.0.1'; echo '#define __cplusplus 201709L'"
    )
    with pytest.raises(BuildError, match=r"is too old for C\+\+20: clang version 9\.0\.1"):
        find_host_compiler({**PATH, "CXX": str(old)})


@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_nothing_but_blanks_is_nothing(value: str, needs_compilers: None) -> None:
    assert find_host_compiler({**PATH, "CXX": value}).path.name in ("g++", "c++", "clang++")
    environ = {**os.environ, "CUDACXX": value, "CUDA_HOME": value, "CUDA_PATH": value}
    assert find_nvcc(environ).source not in ("CUDACXX", "CUDA_HOME", "CUDA_PATH")
    assert parallelism.jobs({"MAX_JOBS": value}, cores=2, memory=1 << 40).count == 2


def test_compilers_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CMake runs them in another folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g++").symlink_to("/usr/bin/g++")
    make_nvcc(tmp_path / "cuda")
    assert find_host_compiler({**PATH, "CXX": "./g++"}).path == tmp_path / "g++"
    assert find_nvcc({**PATH, "CUDACXX": "cuda/bin/nvcc"}).path == tmp_path / "cuda/bin/nvcc"
    assert find_nvcc({**PATH, "CUDA_HOME": "cuda"}).path == tmp_path / "cuda/bin/nvcc"


@pytest.mark.parametrize(
    "variable", ["MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "KERNELS", "CXX", "CUDACXX"]
)
@pytest.mark.parametrize("value", [MANY_DIGITS, "²", "٣", "1e3", "0x2", "-1", "\udcff", "'", "a b"])
def test_variables(needs_compilers: None, variable: str, value: str) -> None:
    with pytest.raises(BuildError, match=r"\A[^\n]+\Z"):
        make_plan({**os.environ, "KERNELS": "prog", variable: value})


def test_many_digits_are_not_all_shown() -> None:
    with pytest.raises(
        BuildError, match=r"MAX_JOBS='9{20}…': expected a whole number from 1 to 9999"
    ):
        parallelism.jobs({"MAX_JOBS": MANY_DIGITS})


@pytest.mark.parametrize("variable", [
    "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "KERNELS", "CXX", "CUDACXX", "CUDA_HOME", "CXXFLAGS",
    "NVCC_APPEND_FLAGS", "TMPDIR", "HOME", "FLASH_ATTENTION_CACHE_DIR", "LIBRARY_PATH",
])  # fmt: skip
def test_bytes_that_are_not_utf_8(needs_compilers: None, variable: str) -> None:
    """In a process, whose output would not take them either."""
    code = "import sys; from flash_helpers.compilers.errors import BuildError\n"
    code += "from flash_helpers.build.plan import make_plan\n"
    code += "try: plan = make_plan(); print(plan.directory, plan.selection.reason)\n"
    code += "except BuildError as error: sys.exit(f'error: {error}')"
    environ: dict[str, str | bytes] = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "py"),
        "KERNELS": "prog",
    }
    done = subprocess.run([sys.executable, "-c", code], env={**environ, variable: b"/\xff"},
                          capture_output=True)  # fmt: skip
    assert b"Traceback" not in done.stderr and done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("text", [MANY_DIGITS, "²", "٣", "", "max", "-1", "a b", "1 0"])
def test_cgroup_files(tmp_path: Path, text: str) -> None:
    """Of any content: no limit is read from what is no number."""
    unlimited = parallelism.available_cores(tmp_path / "none")
    (tmp_path / "cpu").mkdir()
    (tmp_path / "memory").mkdir()
    for name in ("cpu.max", "cpu/cpu.cfs_quota_us", "memory.max", "memory.current",
                 "memory/memory.limit_in_bytes"):  # fmt: skip
        (tmp_path / name).write_text(text)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("0")
    (tmp_path / "memory.stat").write_text(f"inactive_file {text}\n")
    (tmp_path / "meminfo").write_text(f"MemAvailable: {text} kB\n")
    assert parallelism.available_cores(tmp_path) == unlimited
    assert parallelism.available_memory(tmp_path, tmp_path / "meminfo") == 1 << 62


def test_parts_is_a_number(tmp_path: Path) -> None:
    for number in (MANY_DIGITS, "0", "-1", "²", "two"):
        command = [sys.executable, "-m", "flash_helpers.build", "--parts", number, "list"]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "py")},
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 2 and "Traceback" not in done.stderr
