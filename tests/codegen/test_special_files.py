"""Generated files are not read from, nor written over, what is no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flash_helpers.base.plain_file import UnsafeFileError
from flash_helpers.codegen import generate
from flash_helpers.codegen.files import write_if_changed
from flash_helpers.kernel_configs import get_kernel_configs


@pytest.mark.timeout(60)  # reading a FIFO waits for its writer
def test_a_generated_file_is_not_compared_with_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(UnsafeFileError, match=r"a FIFO.*manifest\.json"):
        write_if_changed(tmp_path / "manifest.json", "text")
    (tmp_path / "unit").mkdir()
    config = get_kernel_configs("prog")[0]
    os.mkfifo(tmp_path / "unit" / f"{config.kernel_name()}.cu")
    with pytest.raises(UnsafeFileError, match="a FIFO"):
        generate(tmp_path / "unit", [config], configs_per_unit=1)
