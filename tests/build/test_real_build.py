"""Real builds of two kernels: what is rebuilt when, and that no interruption poisons the tree."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flash_helpers.build.lock import build_lock

from .conftest import HANGS, Tree

BINDING = "CMakeFiles/flash_bindings.dir/staged/bindings/module.cpp.o"
BUILD_INFO = "CMakeFiles/flash_runtime.dir/info/build_info.cpp.o"
NAMES = "print(*_C.kernel_names(), sep='\\n')"


@pytest.fixture(autouse=True)
def restore(tree: Tree) -> Iterator[None]:
    """Gives every changed source its old content back."""
    sources = [p for p in (tree.root / "csrc").rglob("*") if p.is_file()]
    before = {path: path.read_bytes() for path in sources}
    yield
    for path, content in before.items():
        if path.read_bytes() != content:
            path.write_bytes(content)


def is_kernel(name: str) -> bool:
    return name.startswith("CMakeFiles/flash_kernels.dir/")


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_nothing_changed_nothing_is_built(tree: Tree) -> None:
    tree.build()
    assert tree.rebuilt() == set()
    for folder in ("csrc", "previous_kernels"):
        for path in (tree.root / folder).rglob("*"):
            path.touch()
    configured = (tree.directory / "configured").stat().st_mtime_ns
    assert tree.rebuilt() == set()
    assert (tree.directory / "configured").stat().st_mtime_ns == configured, "CMake was run"


def test_a_header_of_the_runtime_rebuilds_no_kernel(tree: Tree) -> None:
    tree.build()
    append(tree.root / "csrc" / "runtime" / "device_guard.h", "constexpr int kPlanted = 1;\n")
    rebuilt = tree.rebuilt()
    assert not any(is_kernel(name) for name in rebuilt)
    assert BINDING not in rebuilt, "the binding does not include this header"
    assert any(name.endswith("launcher.cpp.o") for name in rebuilt)


def test_a_header_of_the_kernels_rebuilds_no_binding(tree: Tree) -> None:
    tree.build()
    header = tree.root / "csrc" / "include" / "flash" / "sm80" / "forward" / "forward.cuh"
    append(header, "namespace flash { constexpr int kPlanted = 1; }\n")
    os.utime(header, (1, 1))  # older than every object
    rebuilt = tree.rebuilt()
    assert sum(is_kernel(name) for name in rebuilt) == 2
    others = {name for name in rebuilt if not is_kernel(name)}
    assert others == {BUILD_INFO, tree.extension.name}


def test_the_compiler_names_the_original_source(tree: Tree) -> None:
    header = tree.root / "csrc" / "include" / "flash" / "sm80" / "forward" / "forward.cuh"
    line = header.read_text().count("\n") + 1
    append(header, "#error planted\n")
    process = tree.start()
    output, _ = process.communicate(timeout=HANGS)
    assert process.returncode != 0
    assert f"{header}:{line}" in output.replace("(", ":").replace('"', "")
    assert "Traceback" not in output and "error: the build failed" in output
    header.write_text("".join(header.read_text().splitlines(True)[: line - 1]))
    cache = (tree.directory / "CMakeCache.txt").stat().st_mtime_ns
    tree.build()
    assert (tree.directory / "CMakeCache.txt").stat().st_mtime_ns == cache, "CMake started anew"


def in_configure(tree: Tree) -> bool:
    return (tree.directory / "configure.log").exists()


def in_compile(tree: Tree) -> bool:
    return any((tree.directory / "CMakeFiles" / "flash_kernels.dir").rglob("*.partial"))


@pytest.mark.parametrize("moment", [in_configure, in_compile])
def test_a_killed_build_is_repaired_by_the_next(tree: Tree, moment: Callable[[Tree], bool]) -> None:
    before = tree.extension.read_bytes()
    (tree.directory / "configured").unlink()
    (tree.directory / "configure.log").unlink()
    header = tree.root / "csrc" / "include" / "flash" / "core" / "dtype.h"
    append(header, f"// {moment.__name__}\n")  # everything is rebuilt, the table of kernels too
    process = tree.start()
    wait_until(lambda: moment(tree), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert tree.extension.read_bytes() == before, "an unfinished build was published"
    steps = tree.steps()
    assert len(steps) == len(set(steps)) <= tree.n_steps(), "something was compiled twice"
    assert len(tree.run_with_extension(NAMES).split()) == 2
    assert not any(tree.directory.rglob("*.partial"))
    assert tree.rebuilt() == set()


def test_a_half_written_library_is_linked_again(tree: Tree) -> None:
    """As by a full disk or a power cut."""
    tree.build()
    (tree.directory / tree.extension.name).write_bytes(b"half")
    assert tree.steps() == [tree.extension.name]
    assert len(tree.run_with_extension(NAMES).split()) == 2


@pytest.mark.slow
def test_builds_killed_at_ten_moments(tree: Tree) -> None:
    header = tree.root / "csrc" / "include" / "flash" / "core" / "dtype.h"
    for n in range(10):
        append(header, f"// {n}\n")
        process = tree.start()
        time.sleep(0.15 + 0.9 * n)
        process.send_signal(signal.SIGKILL)
        process.wait()
    tree.build()
    assert len(tree.run_with_extension(NAMES).split()) == 2
    assert tree.rebuilt() == set()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, "the build ended before"
        time.sleep(0.01)


def test_concurrent_builds_wait_for_each_other(tree: Tree) -> None:
    append(tree.root / "csrc" / "runtime" / "launcher.cpp", "// planted\n")
    with build_lock(tree.directory / "lock"):
        processes = [tree.start() for _ in range(3)]
        for process in processes:
            assert process.stdout is not None
            assert any("waiting for process" in line for line in process.stdout)
    outputs = [process.communicate(timeout=HANGS)[0] for process in processes]
    assert sum("launcher.cpp.o" in output for output in outputs) == 1
    assert sum("ninja: no work to do" in output for output in outputs) == 2
    assert len(tree.run_with_extension(NAMES).split()) == 2


def test_a_folder_that_cannot_be_written_is_one_line(tree: Tree, tmp_path: Path) -> None:
    from .conftest import copy_sources

    other = copy_sources(tmp_path / "tree", tree.compilers)
    (other.root / "build").write_text("a file where a folder should be")
    process = other.start()
    output, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert output.splitlines()[-1].startswith("error: cannot build in")
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KERNELS": "tine"}, "KERNELS 'tine' is not a selection of kernels"),
        ({"TORCH_CUDA_ARCH_LIST": "7.5"}, "'7.5' cannot be built"),
        ({"MAX_JOBS": "many"}, "MAX_JOBS='many'"),
        ({"CUDACXX": "/nowhere/nvcc"}, "CUDACXX='/nowhere/nvcc' is not a program"),
    ],
)
def test_wrong_settings_are_one_line(tree: Tree, variables: dict[str, str], expected: str) -> None:
    process = tree.start(variables)
    output, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert output.startswith("error: ") and expected in output and "Traceback" not in output
    assert "ninja:" not in output and "PyPI" not in output


def test_a_build_that_spills_fails_and_is_not_published(tree: Tree) -> None:
    before = tree.extension.read_bytes()
    header = tree.root / "csrc" / "include" / "flash" / "sm80" / "config.h"
    text = header.read_text()
    header.write_text(text.replace("n_warps <= 4 ? 2 : 1", "8"))  # leaves a thread 64 registers
    assert header.read_text() != text
    process = tree.start()
    output, _ = process.communicate(timeout=HANGS)
    assert process.returncode == 1
    assert "2 kernel builds spill more registers than" in output and "64 registers" in output
    assert tree.extension.read_bytes() == before


def test_a_build_in_parts(tree: Tree, tmp_path: Path) -> None:
    """Each part holds its kernel and answers to the name of the whole; it is there before the next
    is compiled, and nothing is compiled twice."""
    listed = tmp_path / "parts.json"
    ask = {"BUILD_PARTS": str(listed), "MAX_JOBS": "1"}
    header = tree.root / "csrc" / "include" / "flash" / "sm80" / "forward" / "forward.cuh"
    append(header, "namespace flash { constexpr int kPlantedForParts = 1; }\n")
    output = tree.build(ask)
    steps = r"CUDA object \S+|part \d|Linking CXX"
    found = [re.sub(r"CUDA object \S+", "CUDA", step) for step in re.findall(steps, output)]
    assert found == ["CUDA", "part 0", "CUDA", "part 1", "Linking CXX"]
    whole = tree.run_with_extension(f"print(_C.fingerprint()); {NAMES}").split()
    names: list[str] = []
    for item in json.loads(listed.read_text()):
        code = f"print(_C.fingerprint()); {NAMES}"
        fingerprint, name = tree.run_with_extension(code, Path(item["library"])).split()
        assert fingerprint == whole[0] and len(item["kernels"]) == 1
        names.append(name)
    assert sorted(names) == whole[1:]
    assert not any(is_kernel(name) for name in re.findall(r"object (\S+)", tree.build(ask)))
    tree.build()
    assert not list((tree.directory / "parts").rglob("*.so"))  # none that is out of date
