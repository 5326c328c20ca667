"""What the Makefile asks of pip can be installed together, from nothing but the plain index.

uv answers in seconds, as it reads metadata only; pip, which the Makefile calls, downloads what it
resolves even in a dry run, 2.7 GB here, and is asked by `make test-all`.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .conftest import ROOT

# Less what would show pip and uv more than strangers see. Certificates say nothing of packages.
_KEPT = re.compile(r"(?!PIP_|UV_|PYTHON)|PIP_CERT")
_OFFLINE = ("Failed to fetch", "dns error", "Connection refused", "Temporary failure")


def torch_of_the_makefile() -> str:
    (found,) = re.findall(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(found)


def wanted(target: str) -> list[str]:
    requirements = runpy.run_path(str(ROOT / "tools/build/set_up.py"))["requirements"]
    return [torch_of_the_makefile(), *requirements(target)]


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _KEPT.match(name)}


def resolve(requirements: Sequence[str], python: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uv", "pip", "compile", "--no-config", "--quiet", "-"]
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    command += ["--no-build", "--no-header", "--python", sys.executable]
    done = subprocess.run(
        command, input="\n".join(requirements), env=plain_environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if "CI" not in os.environ and any(word in done.stderr for word in _OFFLINE):
        pytest.skip(f"the package index cannot be reached: {done.stderr}")
    return done


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("target", ["run", "test"])
def test_the_plain_index_has_everything(target: str, python: str) -> None:
    done = resolve(wanted(target), python)
    assert done.returncode == 0, done.stderr
    assert f"{torch_of_the_makefile()}\n" in done.stdout


def test_requirements_that_exclude_each_other_are_found() -> None:
    """Those with which `make run` and `make test` could not be set up, once."""
    done = resolve(["torch==2.13.0", "triton==3.6.0"], "3.11")
    assert done.returncode != 0
    assert "torch==2.13.0 depends on triton" in done.stderr, done.stderr


@pytest.mark.slow
def test_pip_agrees(tmp_path: Path) -> None:
    environ = {**plain_environment(), "PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}
    cert = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.cert"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    if cert:
        environ["PIP_CERT"] = cert
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    command += ["--quiet", "--no-cache-dir", "--report", str(report), *wanted("test")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = {item["metadata"]["name"] for item in json.loads(report.read_text())["install"]}
    assert {"torch", "triton", "pytest"} <= names
