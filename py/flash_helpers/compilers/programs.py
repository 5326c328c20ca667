"""Programs that a build runs: where they are, and what they say of themselves."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import BuildError
from .usable_paths import check_path

ANSWER_SECONDS = 60.0
# Older ones lack what CMakeLists.txt and its ninja files use.
_MINIMUM = {"cmake": (3, 25), "ninja": (1, 10)}


@dataclass(frozen=True)
class Tool:
    path: Path
    version: str  # "3.25.1"


def variable(environ: Mapping[str, str], name: str) -> str:
    """Its value; nothing but blanks is the same as nothing."""
    value = environ.get(name, "")
    return value if value.strip() else ""


def find_program(name: str, path: str | None) -> Path | None:
    """What a shell would run, as an absolute path: compilers are run in other folders."""
    found = shutil.which(name, path=path)
    return Path(found).absolute() if found else None


def find_tool(name: str, environ: Mapping[str, str] = os.environ) -> Tool:
    """cmake or ninja. The interpreter's own scripts come first: a build environment's copy on
    PATH is gone after the build, and CMake would remember its path."""
    folders = [sysconfig.get_path("scripts"), environ.get("PATH", os.defpath)]
    found = find_program(name, os.pathsep.join(folders))
    if found is None:
        raise BuildError(f"{name} is not installed: {sys.executable} -m pip install {name}")
    check_path(name, found)
    numbers = version_in(ask([str(found), "--version"], environ))
    if numbers is None:
        raise BuildError(f"{found} --version does not answer like {name}")
    version, needed = ".".join(map(str, numbers)), ".".join(map(str, _MINIMUM[name]))
    if numbers < _MINIMUM[name]:
        raise BuildError(
            f"{found} is {name} {version}; {needed} or newer is needed: "
            f"{sys.executable} -m pip install --upgrade {name}"
        )
    return Tool(found, version)


def version_in(text: str) -> tuple[int, ...] | None:
    """The first "1.2" or "1.2.3" of a text, as numbers."""
    match = re.search(r"(?<![\w.])([0-9]{1,6}(?:\.[0-9]{1,6}){1,2})", text)
    return tuple(int(number) for number in match[1].split(".")) if match else None


def ask(
    command: Sequence[str], environ: Mapping[str, str] | None = None, *, must_succeed: bool = True
) -> str:
    """What a program prints: standard output and error together, since nvcc's dry run speaks on the
    latter. Raises BuildError, in one line, if it cannot be run, fails or does not end."""
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=ANSWER_SECONDS, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        words = " ".join(command)
        raise BuildError(f"{words} gives no answer within {ANSWER_SECONDS:g} s") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BuildError(f"{command[0]} cannot be run: {why}") from error
    if must_succeed and done.returncode != 0:
        raise BuildError(f"{' '.join(command)} fails with code {done.returncode}")
    return done.stdout + done.stderr
