"""The examples run, in the emulator, as their first lines say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAYS = {
    "flash_attn_names.py": "packed and separate agree: True",
    "sdpa.py": "largest difference from PyTorch's attention: 0.00",
    "train_tiny_gpt.py": "largest difference: 0.00",
    "transformers_model.py": "tokens equal to those of eager attention: True",
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_it_says_that_all_is_right(name: str, tmp_path: Path) -> None:
    if "transformers" in name and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    if name == "sdpa.py" and not hasattr(torch.library, "get_kernel"):
        pytest.skip("this torch is too old")
    command = [sys.executable, str(EXAMPLES / name), "--device", "cpu"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
