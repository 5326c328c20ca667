"""Which releases of triton the Triton and Gluon kernels work with.

Gluon is experimental: every release of triton renames functions and compiles kernels anew. So a
minor release counts when the kernels' tests have passed with it (`make test-triton`), not before;
its patch releases, which mend only, count with it.
"""

import importlib
import importlib.util
import re

TESTED = ("3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0")  # oldest first
_RELEASE = re.compile(r"(\d+)\.(\d+)\.\d+(\.post\d+)?(\+.*)?")


class TritonVersionError(ImportError):
    """triton is missing, or is a release that the kernels were not tested with."""


def minor_of(version: str) -> tuple[int, int]:
    """(3, 6) of "3.6.0" and of "3.6.0+git1234"; (0, 0) for what is no final release."""
    found = _RELEASE.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


MINORS = tuple(dict.fromkeys(map(minor_of, TESTED)))
# What pip may install; pyproject.toml says the same (tested).
REQUIREMENT = f"triton>={TESTED[0]},<{MINORS[-1][0]}.{MINORS[-1][1] + 1}"


def installed_version() -> str | None:
    """Of the triton that this process imports; None if there is none."""
    if importlib.util.find_spec("triton") is None:
        return None
    return str(getattr(importlib.import_module("triton"), "__version__", "unknown"))


def require_triton() -> str:
    """The installed release. Raises TritonVersionError if there is none, or one that the kernels
    were not tested with."""
    version = installed_version()
    install = f'pip install "{REQUIREMENT}"'
    if version is None:
        raise TritonVersionError(f"triton is not installed; {install}")
    if minor_of(version) not in MINORS:
        tested = ", ".join(f"{major}.{minor}" for major, minor in MINORS)
        raise TritonVersionError(
            f"triton {version} is installed: the kernels are tested with {tested} only (Gluon "
            f"changes with every release); {install}"
        )
    return version
