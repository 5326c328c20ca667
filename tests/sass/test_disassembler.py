"""What cuobjdump says is kept: by the contents of the file, what was asked, and whole or not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.build.kernel_ptx import kernel_cubin
from flash_helpers.kernel_configs import get_kernel_configs
from flash_lab.sass.disassembler import SassError, cuobjdump


def test_a_cubin_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eight, nine = (kernel_cubin(c).read_bytes() for c in get_kernel_configs("previous")[7:9])
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "cache"))
    runs: list[Any] = []
    real = subprocess.run

    def counted(command: list[str], **options: Any) -> Any:
        runs.append(command)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "run", counted)
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(eight)
    first = cuobjdump("-sass", file=cubin)
    assert cuobjdump("-sass", file=cubin) == first and len(runs) == 1
    assert cuobjdump("-res-usage", file=cubin) != first and len(runs) == 2
    cubin.write_bytes(nine)
    assert cuobjdump("-sass", file=cubin) != first and len(runs) == 3
    cubin.write_bytes(eight)
    assert cuobjdump("-sass", file=cubin) == first and len(runs) == 3

    for entry in (tmp_path / "cache" / "sass").glob("*.txt"):
        entry.write_bytes(entry.read_bytes()[:1000])
    assert cuobjdump("-sass", file=cubin) == first and len(runs) == 4

    cubin.write_bytes(b"no cubin")
    for _ in range(2):
        with pytest.raises(SassError, match="finds no machine code"):
            cuobjdump("-sass", file=cubin)
    assert len(runs) == 6, "a failure is not kept"
