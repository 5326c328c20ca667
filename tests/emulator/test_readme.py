"""The example of the emulator's README runs as it stands, and breaks as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flash_helpers.emulator
from flash_helpers.emulator import OutOfBoundsError, RaceError
from flash_helpers.emulator.door.cli import main, make_parser
from flash_helpers.kernel_configs import DType

from .sm90.gluon import Matmul
from .support import aligned, cuda_to_ptx

README = Path(flash_helpers.emulator.__file__).with_name("README.md").read_text()


ROOT = Path(__file__).parents[2]


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M)


def _block(language: str) -> str:
    return _blocks(language)[0]


def _run(cuda: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    Path("reduce.ptx").write_text(cuda_to_ptx(cuda))
    names: dict[str, Any] = {}
    exec(_block("python"), names)
    return names["sums"]


def test_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = _block("cuda")
    assert (_run(cuda, tmp_path, monkeypatch) == 256).all()
    unsynchronised = cuda.replace("__syncthreads();", "")
    with pytest.raises(RaceError) as race:
        _run(unsynchronised, tmp_path, monkeypatch)
    _, forgotten, too_far, _ = _blocks("text")
    assert "write-after-read, shared memory partial, bytes 4 to 7, 28 times" in race.value.message
    for line in forgotten.splitlines():
        assert line in f"RaceError: {race.value}".replace("kernel.cu", "reduce.cu")
    assert race.value.location.thread == (32, 0, 0)
    with pytest.raises(OutOfBoundsError, match="0 bytes past the end of values") as caught:
        _run(cuda.replace("+ t]", "+ t + 1]"), tmp_path, monkeypatch)
    assert caught.value.location.block == (3, 0, 0)
    assert caught.value.location.thread == (255, 0, 0)
    assert ":4 (PTX line" in caught.value.location.source
    address = re.compile(r"0x[0-9a-f]+")
    shown = f"OutOfBoundsError: {caught.value}".replace("kernel.cu", "reduce.cu")
    assert address.sub("", shown).split() == address.sub("", too_far).split()


def test_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reduce.ptx").write_text(cuda_to_ptx(_block("cuda")))
    names: dict[str, Any] = {}
    counting = [block for block in _blocks("python") if "triton" not in block]
    assert len(counting) == 2
    for block in counting:
        exec(block, names)
    # Thread 0 of each of four blocks reads seven words.
    assert capsys.readouterr().out.endswith("28 28 0\n")


def test_kernel_of_triton() -> None:
    problem = Matmul.make(DType.FP16, 256, 128, 64, 1)
    c = aligned((256, 128), np.uint16)
    (block,) = (block for block in _blocks("python") if "triton" in block)
    names = vars(flash_helpers.emulator) | {
        "compiled": problem.kernel(), "a": problem.a, "b": problem.b, "c": c,
        "rows": 256, "columns": 128, "depth": 64,
    }  # fmt: skip
    exec(block, names)
    assert problem.is_right(c) and names["report"].blocks == 4


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, _, module, source, *options = shlex.split(_block("sh").replace("\\\n", ""))
    assert (program, module) == ("python", "flash_helpers.emulator")
    cuda = (ROOT / source).read_text()
    monkeypatch.chdir(tmp_path)
    Path("reduce.cu").write_text(cuda)
    assert main(["reduce.cu", *options]) == 1
    shown = capsys.readouterr().err
    for line in _blocks("text")[0].splitlines():
        assert line in shown
    assert not Path("sums.npy").exists()

    planted = (
        "      partial[t] += partial[t + half];  // planted: no __syncwarp() between the rounds\n"
    )
    assert planted in cuda
    mended = (
        "const float other = partial[t + half];\n__syncwarp();\n"
        "partial[t] += other;\n__syncwarp();\n"
    )
    Path("reduce.cu").write_text(cuda.replace(planted, mended))
    for schedule in ("forward", "reverse", "random:3"):
        assert main(["reduce.cu", *options, "--schedule", schedule]) == 0
        values = np.random.default_rng(7).standard_normal(1000).astype(np.float32)
        wanted = [values[i : i + 256].sum(dtype=np.float64) for i in range(0, 1000, 256)]
        np.testing.assert_allclose(np.load("sums.npy"), wanted, atol=1e-4)


def test_every_option_is_described() -> None:
    help_text = make_parser().format_help()
    options = set(re.findall(r"(?:^  |, )(--?[a-z][\w-]*)", help_text, re.MULTILINE))
    missing = {name for name in options - {"-h", "--include"} if f"`{name}" not in README}
    assert missing <= {"--help"}, missing
