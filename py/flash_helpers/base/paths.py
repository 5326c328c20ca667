"""Where the packages and the C++ sources lie: in the source tree, or installed."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]  # flash_helpers


def repository_root() -> Path | None:
    """The source tree this package is imported from; None for an installed copy."""
    root = _PACKAGE.parents[1]
    return root if (root / "CMakeLists.txt").is_file() and (root / "csrc").is_dir() else None


def csrc_dir() -> Path:
    """The folder that holds include/, templates/ and emulator/."""
    root = repository_root()
    candidates = ([root / "csrc"] if root else []) + [_PACKAGE / "csrc"]
    for candidate in candidates:
        if (candidate / "include" / "flash").is_dir():
            return candidate
    raise FileNotFoundError(
        f"the C++ sources are neither beside {_PACKAGE} nor in it: "
        f"looked for {' and '.join(str(c / 'include/flash') for c in candidates)}; "
        "reinstall the package"
    )


def previous_dir() -> Path:
    """The folder with the earlier steps of the kernel, beside csrc/ in a source tree and in an
    installed package."""
    return csrc_dir().parent / "previous_kernels"


def python_path() -> str:
    """The PYTHONPATH with which another process imports the packages that this one has, whatever
    else may be installed; the folders of this process's own PYTHONPATH follow."""
    own = [str(_PACKAGE.parent)]
    root = repository_root()
    own += [str(root)] if root else []
    return os.pathsep.join(filter(None, [*own, os.environ.get("PYTHONPATH", "")]))
