"""The C++ compiler that the emulator is given: whatever it does is one clear error. (That it gets
strange paths as they are is in test_cache.py, where the runtime is compiled below one.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_helpers.compilers import programs
from flash_helpers.emulator import EmulatorBuildError, compile_kernel
from flash_helpers.emulator.door.compile import Toolchain

from .support import ptx_kernel

PTX = ptx_kernel("mad.wide.u32 %x0, %t, 4, %p0; st.global.u32 [%x0], %t;", parameters=1)
WRONG = {
    "fails": "exit 1",
    "prints nothing": "exit 0",
    "prints binary data": r"printf '\377\000\n'; exit 1",
    "hangs": "sleep 600",
    "compiles nothing": "echo version 1; exit 0",
    "fails to compile": "[ $# -eq 1 ] && echo version 1 || { printf '\\377 no\\n' >&2; exit 1; }",
}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_a_flag_of_gcc_is_for_gcc_alone() -> None:
    gcc, clang = (
        Toolchain(("c++",), version, "cpu").kernel_flags
        for version in ("c++ (Debian) 12.2.0\nFree Software Foundation, Inc.", "clang version 17")
    )
    assert {*gcc} - {*clang} == {"-fira-region=one"} and {*clang} < {*gcc}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_compiler_that_is_none(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(programs, "ANSWER_SECONDS", 0.5 if wrong == "hangs" else 60.0)
    program = own_cache / wrong.replace(" ", "-")
    program.write_text(f"#!/bin/sh\n{WRONG[wrong]}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(EmulatorBuildError, match=wrong.replace(" ", "-")):
        compile_kernel(PTX, "kernel")


@pytest.mark.parametrize("value", ["/bin/false", "g++ 'x", '"', "''", "\udcff"])
def test_what_cannot_be_run(own_cache: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CXX", value)
    with pytest.raises(EmulatorBuildError, match=r"\$CXX is .*, which cannot be run"):
        compile_kernel(PTX, "kernel")
