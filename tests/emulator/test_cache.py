"""The cache holds code that is loaded, so only its owner may write it; and compiled kernels survive
concurrency, interruption and damage."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from flash_helpers.base import cache
from flash_helpers.emulator import EmulatorBuildError, compile_kernel
from flash_helpers.emulator.door import compile as compile_module

from .support import aligned, ptx_kernel, run

PTX = ptx_kernel("mad.wide.u32 %x0, %t, 4, %p0; st.global.u32 [%x0], %t;", parameters=1)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def with_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """own_cache, in which the runtime lies already: it takes eight seconds of compiling, and is
    none of what these tests are about (test_many_threads_and_processes_at_once builds it)."""
    runtime = compile_module.runtime().library_path
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copy2(runtime, cache.cache_dir("emulator"))
    return tmp_path / "cache"


def _works(ptx: str = PTX) -> bool:
    out = aligned(32, np.uint32)
    run(compile_kernel(ptx, "kernel"), [out])
    return bool((out == np.arange(32)).all())


def test_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLASH_ATTENTION_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_dir() == tmp_path / "home/.cache/flash_attention"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_dir("a") == tmp_path / "xdg/flash_attention/a"
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "own"))
    assert cache.cache_dir() == tmp_path / "own"
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_can_write_is_refused(own_cache: Path, mode: int) -> None:
    own_cache.mkdir()
    own_cache.chmod(mode)
    with pytest.raises(cache.UnsafeCacheError, match="chmod 700"):
        compile_kernel(PTX, "kernel")
    own_cache.chmod(0o700)
    (own_cache / "emulator").mkdir()
    (own_cache / "emulator").chmod(mode)
    with pytest.raises(cache.UnsafeCacheError, match="chmod 700"):
        compile_kernel(PTX, "kernel")


def test_a_link_or_a_foreign_directory_is_refused(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    own_cache.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(cache.UnsafeCacheError, match="link"):
        cache.cache_dir()
    own_cache.unlink()
    own_cache.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(cache.UnsafeCacheError, match="belongs to user"):
        cache.cache_dir()


def test_a_lock_is_exclusive_and_dies_with_its_holder(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    code = "import sys, time; from pathlib import Path\n"
    code += "from flash_helpers.base.cache import exclusive\n"
    code += "with exclusive(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(entry)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(cache.__file__).parents[1])},
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(cache.CacheLockTimeout, match=f"held by process {holder.pid}"),
            cache.exclusive(entry, timeout_s=0.1),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with cache.exclusive(entry, timeout_s=30):  # else CacheLockTimeout
            pass


def _libraries(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (folder / "emulator").glob("*.so")}


def test_compiled_once_and_rebuilt_when_damaged(with_runtime: Path) -> None:
    assert _works()
    before = _libraries(with_runtime)
    assert len(before) == 2  # runtime and kernel
    assert _works() and _libraries(with_runtime) == before
    kernel = next((with_runtime / "emulator").glob("kernel-*.so"))
    data = kernel.read_bytes()
    for damaged in (data[: len(data) // 2], b"", data[:-40] + bytes(40), b"x" * len(data)):
        kernel.unlink()  # a new file: the old one stays mapped in this process
        kernel.write_bytes(damaged)
        assert not cache.is_intact(kernel)
        assert _works()
        assert cache.is_intact(kernel)


def _works_elsewhere() -> subprocess.Popen[bytes]:
    """The same in a new process: this one may have the library loaded already."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.emulator.test_cache import _works; assert _works()"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'py'}:{root}"},
    )


def test_a_library_that_is_intact_but_does_not_load_is_rebuilt(with_runtime: Path) -> None:
    assert _works_elsewhere().wait() == 0
    kernel = next((with_runtime / "emulator").glob("kernel-*.so"))
    size = kernel.stat().st_size
    junk = with_runtime / "junk"
    junk.write_bytes(b"not a library")
    cache.publish(junk, kernel)
    assert cache.is_intact(kernel) and kernel.stat().st_size < size
    assert _works_elsewhere().wait() == 0
    assert kernel.stat().st_size == size


def test_many_threads_and_processes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a path with all that a shell would read, and with a compiler named by blanks, which is
    none: the first on PATH, here one that takes less time."""
    own_cache = tmp_path / "o'brien $(exit 1) `x` \"; [a] | b, # * < > ^ \\ %é\n\udcff"
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(own_cache))
    monkeypatch.setenv("CXX", " ")
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@" -O1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    compile_module.find_toolchain.cache_clear()
    processes = [_works_elsewhere() for _ in range(3)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: _works(), range(8)))
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(_libraries(own_cache)) == 2
    leftovers = [
        p.name for p in (own_cache / "emulator").iterdir() if p.suffix not in (".so", ".lock")
    ]
    assert leftovers == []
    compile_module.find_toolchain.cache_clear()


def test_a_missing_compiler_is_said(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(EmulatorBuildError, match=r"/no/such/compiler.*Install g\+\+"):
        compile_kernel(PTX, "kernel")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    compile_module.find_toolchain.cache_clear()
    try:
        with pytest.raises(EmulatorBuildError, match=r"none of g\+\+, c\+\+, clang\+\+"):
            compile_kernel(PTX, "kernel")
    finally:
        compile_module.find_toolchain.cache_clear()


def test_the_portable_paths_give_the_same_results() -> None:
    """ucontext fibers and no vector instructions: what other processors run."""
    flags = ("-O1", "-DEMULATOR_PORTABLE_CONTEXT", "-mno-avx2", "-mno-f16c", "-mno-avx512f")
    portable = compile_module.runtime(flags)
    from flash_helpers.emulator.door.launch import EmulatedKernel

    from .test_warp_collectives import mma_kernel

    rng = np.random.default_rng(5)
    a, b = aligned((16, 16), np.float16), aligned((16, 8), np.float16)
    c = aligned((16, 8), np.float32)
    for array in (a, b, c):
        array[:] = rng.standard_normal(array.shape)
    results = []
    for runtime in (portable, compile_module.runtime()):
        out = aligned((4, 16, 8), np.float32)
        run(EmulatedKernel(mma_kernel("f16"), "kernel", runtime), [a, b, c, out])
        results.append(out.view(np.uint32))
    np.testing.assert_array_equal(*results)
