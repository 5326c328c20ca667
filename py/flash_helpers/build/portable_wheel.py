"""Gives wheels the platform tag that auditwheel finds for them: of the oldest systems they run on.

    tools/build/portable_wheel.py dist/*.whl     writes …-manylinux_2_34_x86_64.whl beside each

The build tags a wheel for Linux at large, which indexes do not take. What it can be depends on the
C and C++ libraries of the system that built it. The packages auditwheel and wheel are needed.

Exit status: 0 all have their tag, 1 one needs a library that no tag promises, 2 wrong usage.
"""

import functools
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..base.safe_read import parse_json
from ..base.tool import EXIT_FAILED, EXIT_OK, guarded, tool_parser


class NotPortableError(Exception):
    """The message is for people."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = tool_parser("portable_wheel.py", __doc__)
    parser.add_argument("wheels", metavar="WHEEL", nargs="+", type=Path)
    wheels = parser.parse_args(arguments).wheels
    for name in ("auditwheel", "wheel"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"no module {name}", name=name)
    for wheel in wheels:
        if not wheel.is_file():
            parser.error(f"{wheel} is not a file")
    code = EXIT_OK
    for wheel in wheels:
        try:
            print(tagged(wheel, platform_of(wheel)))
        except NotPortableError as error:
            print(f"error: {wheel.name}: {error}", file=sys.stderr)
            code = EXIT_FAILED
    return code


def platform_of(wheel: Path) -> str:
    """The tag, as manylinux_2_34_x86_64. Raises NotPortableError where there is none."""
    found: dict[str, Any] = parse_json(_run("auditwheel", "show", "--json", wheel.resolve()))
    if error := found.get("error"):
        raise NotPortableError(error)
    tag = str(found["overall_tag"])
    if not tag.startswith("manylinux"):
        libraries = ", ".join(found["external_libs"]) or "symbols of this system alone"
        raise NotPortableError(f"{tag} is all that it can be: it needs {libraries}")
    return tag


def tagged(wheel: Path, platform: str) -> Path:
    """A copy with the tag, beside the wheel, which stays."""
    name = _run("wheel", "tags", "--platform-tag", platform, wheel).split()[-1]
    return wheel.parent / name


def _run(module: str, *words: str | Path) -> str:
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    if not done.stdout.strip():
        raise NotPortableError(done.stderr.strip().rpartition("\n")[2] or f"{module} said nothing")
    return done.stdout


command = functools.partial(guarded, "portable_wheel.py", main)
