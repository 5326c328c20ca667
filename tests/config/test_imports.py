"""flash_helpers is usable where torch and the extension are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULES = [
    "kernel_configs", "forward_args", "config_sets", "codegen", "reference", "tolerance",
    "workload", "peers", "runner", "runner_selection", "runner_report", "test.utils",
]  # fmt: skip


def test_importing_the_helpers_imports_neither_torch_nor_the_package() -> None:
    imports = "; ".join(f"import flash_helpers.{module}" for module in MODULES)
    heavy = "[m for m in ('torch', 'flash_attention') if m in sys.modules]"
    code = f"import sys; {imports}; print({heavy})"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "py")}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"
