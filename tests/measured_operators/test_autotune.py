"""matmul_autotune.py with a search that measures nothing, on the real cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from flash_attention.operators.matrices.config import MatmulConfig, configs
from flash_attention.triton_kit.tuning import Measured, Tuned, best
from flash_lab.operators.autotune_cli import main

KIT = "flash_attention.triton_kit.tuning"
pytestmark = pytest.mark.filterwarnings(f"ignore::{KIT}.TuningCacheWarning")
SHAPES = "4096x4096x4096,512x4096x1024"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path / "cache"


class Search:
    """The kit's, but for the GPU: the later a configuration, the faster; `failing` do not run."""

    def __init__(self, failing: Sequence[int] = (), dead: int = 0) -> None:
        self.failing, self.dead, self.tried = failing, dead, list[int]()

    def __call__(self, shape: tuple[int, int, int], dtype: str) -> Tuned[MatmulConfig]:
        space = configs(shape[0], shape[1], "half", 90)
        key = {"shape": list(shape), "dtype": dtype}
        return best(key, space, MatmulConfig, self.measure(shape))

    def measure(self, shape: tuple[int, int, int]) -> Callable[[Sequence[MatmulConfig]], Measured]:
        def measured(candidates: Sequence[MatmulConfig]) -> Measured:
            failing = range(len(candidates)) if shape[0] == self.dead else self.failing
            self.tried += range(len(candidates))
            times = {i: 9.0 - i for i in range(len(candidates)) if i not in failing}
            return times, dict.fromkeys(failing, "OutOfResources: shared memory")

        return measured


def test_measured_once_counted_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, search = tmp_path / "cache.json", Search(failing=[7, 2])
    asked = ["--shapes", SHAPES, "--export", str(out)]
    assert main(asked, search) == 0
    first = capsys.readouterr().out.splitlines()
    exported = json.loads(out.read_text())
    expected = configs(4096, 4096, "half", 90)[6].as_dict()
    assert list(exported) == ["4096x4096x4096:float16", "512x4096x1024:float16"]
    assert exported["4096x4096x4096:float16"] == expected
    assert all("3 ms, measured, 2 failed" in line for line in first)
    tried = len(search.tried)
    assert main(asked, search) == 0
    assert len(search.tried) == tried  # neither the winners nor the failed ones
    again = capsys.readouterr().out.splitlines()
    assert again == [line.replace("measured", "from the cache") for line in first]
    assert json.loads(out.read_text()) == exported


def test_a_shape_for_which_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cache.json"
    assert main(["--shapes", SHAPES, "--export", str(out)], Search(dead=512)) == 3
    assert list(json.loads(out.read_text())) == ["4096x4096x4096:float16"]
    assert "512x4096x1024:float16: no configuration runs" in capsys.readouterr().err
    assert main(["--shapes", "512x4096x1024"], Search(dead=512)) == 4


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--shapes", SHAPES]) == 4  # no GPU
    with pytest.raises(SystemExit, match="2"):
        main(["--shapes", "4096"])
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    search = Search()
    with pytest.raises(SystemExit, match="2"):
        main(["--shapes", SHAPES], search)
    assert search.tried == []
