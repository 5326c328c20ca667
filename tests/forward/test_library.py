"""Which compiled library is loaded, and which is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flash_attention import __version__, library
from flash_attention.library import LIBRARY_VARIABLE, LibraryNotFoundError, load_library

REPOSITORY = Path(__file__).resolve().parents[2]
PRINT_INFO = "import flash_attention; print(flash_attention.library_info().path)"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the built extension; skips where none was built."""
    built = sorted((REPOSITORY / "flash_attention").glob("_C.*.so"))
    ours = [
        p for p in built if sys.implementation.cache_tag.replace("-", "") in p.name.replace("-", "")
    ]
    if not ours:
        pytest.skip("flash_attention._C is not built for this Python")
    return Path(shutil.copy(ours[0], tmp_path))


def load_in_a_new_process(path: str) -> subprocess.CompletedProcess[str]:
    sources = f"{REPOSITORY / 'py'}:{REPOSITORY}"
    environment = {**os.environ, LIBRARY_VARIABLE: path, "PYTHONPATH": sources}
    return subprocess.run(
        [sys.executable, "-c", PRINT_INFO], capture_output=True, text=True, env=environment,
        check=False, cwd=REPOSITORY,
    )  # fmt: skip


def test_the_variable_names_another_build(copied: Path) -> None:
    done = load_in_a_new_process(str(copied))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copied)


def test_a_build_that_others_can_write_is_refused(copied: Path) -> None:
    copied.chmod(0o666)
    done = load_in_a_new_process(str(copied))
    assert done.returncode != 0 and "can be written by others (mode 666)" in done.stderr


def test_somebody_elses_build_is_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(copied, 12345, -1)
    with pytest.raises(LibraryNotFoundError, match="belongs to user 12345"):
        library.check_trusted(copied)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("relative/_C.so", "must be an absolute path"),
        ("/nowhere/_C.so", "cannot be read: No such file"),
        ("/tmp", "is not a regular file"),
    ],
)
def test_bad_paths(path: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, path)
    load_library.cache_clear()
    try:
        with pytest.raises(LibraryNotFoundError, match=message):
            load_library()
    finally:
        load_library.cache_clear()


def test_a_file_that_is_no_extension_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "_C.so"
    path.write_text("not a library")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(path))
    load_library.cache_clear()
    try:
        with pytest.raises(ImportError):
            load_library()
    finally:
        load_library.cache_clear()


@pytest.mark.parametrize(
    "use", ["flash_attention.flash_attn_func", "import flash_attention.doctor.cli"]
)
def test_a_missing_pytorch_is_named_and_not_installed(use: str) -> None:
    """The package can still be imported."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'py'}:{REPOSITORY}"}
    code = "import sys; sys.modules['torch'] = None; import flash_attention; "
    code += f"print(flash_attention.__version__, hasattr(flash_attention, 'what')); {use}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (1, f"{__version__} False\n")
    assert last.startswith("ModuleNotFoundError: flash_attention needs PyTorch 2.4 or newer")
    assert "pip install torch" in last and "flash_helpers.build" in last
