"""What the commands share that run tests with several releases of a package."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED, FAILED, MISSING = "passed", "failed", "could not be installed"
# Runs a command, in a folder if one is given, and returns its exit code.
Execute = Callable[..., int]


def execute(command: Sequence[str], environment: Mapping[str, str], where: Path = ROOT) -> int:
    return subprocess.run(command, env=environment, check=False, cwd=where).returncode


def install(wanted: Sequence[str], where: Path, run: Execute) -> bool:
    """Into a folder of its own first: an interrupted download leaves none that looks whole."""
    where.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=where.parent, prefix=f"{where.name}.") as private:
        target = Path(private) / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if run([*pip, "--target", str(target), *wanted], os.environ):
            return False
        try:
            target.rename(where)
        except OSError as problem:
            if not where.is_dir():  # else another process was faster
                error(f"{where}: {problem.strerror}")
                return False
    return True


def beside(package: str, release: str, run: Execute, folder: Path, *options: str) -> dict[str, str]:
    """The environment in which Python finds this release of a package before any other, installed
    into `folder` once, with `options` of pip. Empty, and an error is printed: it was not to be had.
    """
    where = folder / f"{package}-{release}"
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(where), *([before] if before else [])])
    environment = {**os.environ, "PYTHONPATH": path}
    if not where.is_dir() and not install([*options, f"{package}=={release}"], where, run):
        return {}
    right = f"import sys, {package}; sys.exit({package}.__version__ != {release!r})"
    if run([sys.executable, "-c", right], environment):
        error(f"{where} does not hold {package} {release}: remove it")
        return {}
    return environment


def split(arguments: Sequence[str], default: Sequence[str]) -> tuple[list[str], list[str]]:
    """Releases, and what is behind `--`: pytest's arguments."""
    options = list(arguments)
    at = options.index("--") if "--" in options else len(options)
    return options[:at] or list(default), options[at + 1 :]


def summary(package: str, results: Mapping[str, str]) -> int:
    """Prints a line for each release, and returns the exit code."""
    for release, result in results.items():
        print(f"{package} {release}: {result}")
    found = set(results.values())
    return 1 if FAILED in found else 4 if found == {MISSING} else 3 if MISSING in found else 0


def error(message: str) -> None:
    print(f"error: {message}", file=sys.stderr, flush=True)


def ended(main: Callable[[Sequence[str]], int]) -> int:
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
