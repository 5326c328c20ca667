"""Kernels that the build lacks: compiled on first use. Without a GPU: what would be loaded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from flash_attention import KernelNotBuiltError, interface, jit
from flash_helpers.base.cache import UnsafeCacheError
from flash_helpers.build.kernel_nvrtc import cached_nvrtc_cubin
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvrtc import Nvrtc
from flash_helpers.kernels.contract import KernelConfig, Variant
from flash_helpers.kernels.sets import get_kernels_to_build

ALL = get_kernels_to_build("all")
CONFIG = next(c for c in ALL if c.FAMILY == "sm80" and Variant.ANY in c.built_variants())
BACKWARD = next(c for c in ALL if c.FAMILY == "sm90_bwd")
Kernels = list[tuple[str, str, bytes]]


@dataclass
class Library:
    """A build with nothing in it, which remembers what is loaded."""

    loaded: list[tuple[str, str, bytes, Kernels]] = field(default_factory=list)

    def kernel_names(self) -> list[str]:
        return [name for _, name, _, _ in self.loaded]

    def variants(self, kernel_id: int) -> list[str]:
        return [variant for variant, _, _ in self.loaded[kernel_id][3]]

    def kernel_set(self) -> str:
        return "none"

    def load_kernels(self, family: str, name: str, config: bytes, kernels: Kernels) -> int:
        self.loaded.append((family, name, config, kernels))
        return len(self.loaded) - 1


@dataclass(frozen=True)
class Compiler:
    """Writes down what it is asked for, and takes as long as its answer needs to be seen."""

    journal: Path
    identity: str = "stand-in"
    version: str = "0.0"

    def cubin(self, source: str, name: str, options: tuple[str, ...]) -> bytes:
        with self.journal.open("a") as file:
            file.write(f"{name} {' '.join(o for o in options if o.startswith('-arch'))}\n")
        return b"code of " + name.encode()

    def compiled(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    return Compiler(tmp_path / "journal")


@pytest.fixture
def library(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """On a machine with an H100, as far as Python sees."""
    found = Library()
    monkeypatch.delenv(jit.VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(jit, "find_nvrtc", lambda: compiler)
    for module in (jit, interface):
        monkeypatch.setattr(module, "load_library", lambda: found)
    jit.forget()
    interface.kernel_ids.cache_clear()
    yield found
    jit.forget()
    interface.kernel_ids.cache_clear()


def test_a_kernel_is_compiled_for_the_device_once(library: Library, compiler: Compiler) -> None:
    ids = [interface.kernel_id_of(CONFIG, Variant.ANY, 0) for _ in range(2)]
    assert ids == [0, 0]
    symbol = CONFIG.symbol(Variant.ANY)
    kernels = [("any", symbol, f"code of {symbol}.cu".encode())]
    assert library.loaded == [("sm80", CONFIG.kernel_name(), CONFIG.to_cpp_bytes(), kernels)]
    assert compiler.compiled() == [f"{symbol}.cu -arch=sm_90a"]


def test_another_kernel_of_the_configuration_is_another_entry(library: Library) -> None:
    ids = [interface.kernel_id_of(CONFIG, v, 0) for v in (Variant.ANY, Variant.WHOLE, Variant.ANY)]
    assert ids == [0, 1, 0]
    assert interface.available_kernels() == [], "what is chosen from is the build"


def test_what_is_compiled_on_first_use_is_available(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = interface.available_kernels(on_first_use=True)
    assert set(ALL) <= set(found) and interface.available_kernels() == []
    assert library.loaded == []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    families = {c.FAMILY for c in interface.available_kernels(on_first_use=True)}
    assert "sm80" in families and not any(name.startswith("sm90") for name in families)
    monkeypatch.setenv(jit.VARIABLE, "0")
    assert interface.available_kernels(on_first_use=True) == []


def test_a_backward_pass_has_all_of_its_kernels(library: Library) -> None:
    assert interface.kernel_id_of(BACKWARD, BACKWARD.first_variant(), 0) == 0
    assert library.variants(0) == ["dots", "keys", "queries"]


def test_the_next_process_takes_it_from_the_cache(
    library: Library, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    interface.kernel_id_of(CONFIG, Variant.ANY, 0)
    interface.kernel_id_of(CONFIG, Variant.WHOLE, 0)
    said = capsys.readouterr().err
    assert said.count("compiling kernels that this build lacks") == 1, "once, not for each"
    jit.forget()
    interface.kernel_id_of(CONFIG, Variant.ANY, 0)
    assert len(compiler.compiled()) == 2 and capsys.readouterr().err == ""


def test_what_no_build_has_is_refused(library: Library) -> None:
    plain = next(
        c for c in ALL if Variant.ANY in c.variants() and c.built_variants() == (Variant.WHOLE,)
    )
    with pytest.raises(ValueError, match="multiples of its blocks alone"):
        interface.kernel_id_of(plain, Variant.ANY, 0)
    assert library.loaded == []


@pytest.mark.parametrize(
    ("setting", "cuda", "message"),
    [("0", True, "FLASH_ATTENTION_JIT=0"), ("1", False, "there is no CUDA device")],
)
def test_a_refusal_says_why(
    setting: str, cuda: bool, message: str, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jit.VARIABLE, setting)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert not jit.is_on()
    with pytest.raises(KernelNotBuiltError, match=message):
        interface.kernel_id_of(CONFIG, Variant.ANY, 0)


def test_without_nvrtc_the_refusal_says_where_it_was_looked_for(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Nvrtc:
        raise BuildError("NVRTC was not found")

    monkeypatch.setattr(jit, "find_nvrtc", nowhere)
    with pytest.raises(KernelNotBuiltError, match="NVRTC was not found"):
        interface.kernel_id_of(CONFIG, Variant.ANY, 0)


def test_another_setting_is_no_setting(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jit.VARIABLE, "off")
    with pytest.raises(ValueError, match="'off': expected 0 or 1"):
        jit.is_on()


def cubin(compiler: Compiler, config: KernelConfig = CONFIG) -> bytes:
    return cached_nvrtc_cubin(compiler, config, "sm_80", config.first_variant())  # type: ignore[arg-type]


def test_many_processes_compile_once(compiler: Compiler) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        found = pool.map(cubin, [compiler] * 8, chunksize=1)
    assert len(set(found)) == 1 and len(compiler.compiled()) == 1


def test_a_damaged_file_is_compiled_again(compiler: Compiler) -> None:
    whole = cubin(compiler)
    (path,) = Path(os.environ["FLASH_ATTENTION_CACHE_DIR"], "jit").glob("*.cubin")
    path.write_bytes(path.read_bytes()[:-1])
    assert cubin(compiler) == whole and len(compiler.compiled()) == 2


def test_a_file_that_others_can_write_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    cubin(compiler)
    (path,) = Path(os.environ["FLASH_ATTENTION_CACHE_DIR"], "jit").glob("*.cubin")
    path.chmod(0o722)
    with pytest.raises(UnsafeCacheError, match="can be written by others"):
        cubin(compiler)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeCacheError, match="is a link"):
        cubin(compiler)


def test_a_file_of_somebody_else_is_refused(compiler: Compiler) -> None:
    cubin(compiler)
    (path,) = Path(os.environ["FLASH_ATTENTION_CACHE_DIR"], "jit").glob("*.cubin")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)
    with pytest.raises(UnsafeCacheError, match="belongs to somebody else"):
        cubin(compiler)
    assert len(compiler.compiled()) == 1


def test_a_killed_compiler_leaves_nothing_and_nobody_waits_for_it(compiler: Compiler) -> None:
    class Hanging(Compiler):
        def cubin(self, source: str, name: str, options: tuple[str, ...]) -> bytes:
            super().cubin(source, name, options)
            signal.pause()
            return b""

    process = multiprocessing.get_context("fork").Process(
        target=cubin, args=(Hanging(compiler.journal),)
    )
    process.start()
    while not compiler.compiled():
        time.sleep(0.01)
    process.kill()
    process.join()
    folder = Path(os.environ["FLASH_ATTENTION_CACHE_DIR"], "jit")
    assert not list(folder.glob("*.cubin"))
    assert cubin(compiler) and len(compiler.compiled()) == 2
    assert len(list(folder.glob("*.cubin"))) == 1


def test_what_failed_to_compile_is_not_kept(compiler: Compiler) -> None:
    class Failing(Compiler):
        def cubin(self, source: str, name: str, options: tuple[str, ...]) -> bytes:
            raise RuntimeError("a message")

    with pytest.raises(RuntimeError, match="a message"):
        cubin(Failing(compiler.journal))
    assert cubin(compiler) and len(compiler.compiled()) == 1
