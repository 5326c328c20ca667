"""Installs the packages and drives the build of flash_attention._C (py/flash_helpers/build).

KERNELS=tune python setup.py install
pip install --no-build-isolation .
pip install -e .

KERNELS, TORCH_CUDA_ARCH_LIST, MAX_JOBS, CUDACXX and CUDA_HOME say what is built, for which GPUs and
with what. From a source archive it is the launcher alone if KERNELS is not set: kernels are
compiled on first use.
"""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.install import install

ROOT = Path(__file__).resolve().parent
PYTHON_SOURCES = ROOT / "py"
sys.path.insert(0, str(PYTHON_SOURCES))
if (ROOT / "PKG-INFO").is_file():  # as source archives have, and repositories have not
    os.environ.setdefault("KERNELS", "none")


class CMakeBuild(build_ext):
    """Builds the one extension and copies it to where setuptools wants it, and into the source
    tree: from the repository root, `import flash_attention` finds the sources first."""

    def run(self) -> None:
        if importlib.util.find_spec("jinja2") is None:
            sys.exit(f"error: jinja2 is not installed: {sys.executable} -m pip install jinja2")
        from flash_helpers.build.driver import build
        from flash_helpers.build.report import summary
        from flash_helpers.compilers.errors import BuildError

        folders = [ROOT / "flash_attention"]
        if not self.inplace and not getattr(self, "editable_mode", False):
            folders.append(Path(self.build_lib) / "flash_attention")
        try:
            result = build(publish_to=folders)
        except BuildError as error:
            sys.exit(f"error: {error}")
        print(f"flash_attention: {summary(result.rows)}; {result.seconds:.1f} s", flush=True)


class FlatInstall(install):
    """`setup.py install` into site-packages itself. Before setuptools 80 the default is an egg
    folder and easy-install.pth, which pip does not expect."""

    def run(self) -> None:
        super(install, self).run()


def private_build_base() -> str:
    """setuptools' own build folder, one per process: in a shared one, concurrent installs mix, and
    modules deleted from the sources are installed for ever. Ours stays: build/<python>-<arch>-…"""
    parent = ROOT / "build"
    try:
        parent.mkdir(exist_ok=True)
        folder = tempfile.mkdtemp(prefix="setuptools-", dir=parent)
    except OSError as error:
        sys.exit(f"error: cannot write {parent}: {error.strerror}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def packages() -> dict[str, str]:
    """Package -> its folder."""
    found = {
        name: f"py/{name.replace('.', '/')}"
        for name in find_packages(str(PYTHON_SOURCES))
        if name.split(".")[0] in ("flash_helpers", "flash_lab", "flash_attention_kernels")
    }
    for name in find_packages(str(ROOT), include=["flash_attention", "flash_attention.*"]):
        found[name] = name.replace(".", "/")
    sources = {"flash_helpers.csrc": "csrc", "flash_helpers.previous_kernels": "previous_kernels"}
    return {**found, **sources}


setup(
    packages=list(packages()),
    package_dir=packages(),
    ext_modules=[Extension("flash_attention._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "install": FlatInstall},
    options={"build": {"build_base": private_build_base()}},
    zip_safe=False,
)
