"""Which compilers are found, in which order, and what is said when none is."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from flash_helpers.compilers import toolchain
from flash_helpers.compilers.errors import BuildError
from flash_helpers.compilers.nvcc_wheels import PINNED_WHEELS, find_or_install_nvcc, install_folder
from flash_helpers.compilers.toolchain import find_host_compiler, find_nvcc

Environment = dict[str, str]


def make_nvcc(root: Path, version: str = "13.0.88", *, wrapped_in: Path | None = None) -> Path:
    """A program that answers like nvcc; optionally behind a wrapper script elsewhere."""
    program = root / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'here="{program.parent}"\n'
        'case "$1" in\n'
        f"--version) echo 'Cuda compilation tools, release 13.0, V{version}' ;;\n"
        '--dryrun) echo "#$ _HERE_=$here" >&2 ;;\n'
        "--list-gpu-code) printf 'sm_75\\nsm_80\\nsm_90\\ncompute_80\\n' ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    if wrapped_in is None:
        return program
    wrapped_in.mkdir(parents=True)
    wrapper = wrapped_in / "nvcc"
    wrapper.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment without any CUDA compiler."""
    monkeypatch.setattr(toolchain, "USUAL_FOLDER", tmp_path / "no cuda")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "packages"))
    return {"PATH": "/usr/bin:/bin", "FLASH_ATTENTION_CACHE_DIR": str(tmp_path / "cache")}


def test_every_place_is_searched_in_order(
    tmp_path: Path, environ: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "USUAL_FOLDER", tmp_path / "usual")
    wheel = tmp_path / "packages" / "nvidia" / "cu13"
    private = install_folder(environ) / "nvidia" / "cu13"
    places = ["explicit", "home", "path", "on_path", "usual"]
    roots = [*(tmp_path / place for place in places), wheel, private]
    for root in roots:
        make_nvcc(root)
    for name, version in PINNED_WHEELS.items():
        (private.parents[1] / f"{name.replace('-', '_')}-{version}.dist-info").mkdir()
    private.parents[1].chmod(0o700)
    environ["CUDACXX"] = str(tmp_path / "explicit" / "bin" / "nvcc")
    environ["CUDA_HOME"] = str(tmp_path / "home")
    environ["CUDA_PATH"] = str(tmp_path / "path")
    environ["PATH"] = f"{tmp_path / 'on_path' / 'bin'}:{environ['PATH']}"
    found = []
    for root in roots:
        nvcc = find_nvcc(environ)
        found.append(nvcc.root)
        if "CUDACXX" in environ:
            del environ["CUDACXX"]
        (root / "bin" / "nvcc").unlink()
    assert found == roots
    with pytest.raises(BuildError, match="no usable CUDA compiler"):
        find_nvcc(environ)


def test_a_wrapper_script_answers_for_the_program_behind_it(
    tmp_path: Path, environ: Environment
) -> None:
    make_nvcc(tmp_path / "toolkit", wrapped_in=tmp_path / "wrappers")
    environ["PATH"] = f"{tmp_path / 'wrappers'}:{environ['PATH']}"
    nvcc = find_nvcc(environ)
    assert nvcc.path == tmp_path / "toolkit" / "bin" / "nvcc"
    assert (nvcc.source, nvcc.version, nvcc.release) == ("PATH", "13.0.88", (13, 0))
    assert nvcc.supported_targets == ("75", "80", "90")


def test_an_explicit_compiler_is_never_replaced(tmp_path: Path, environ: Environment) -> None:
    make_nvcc(tmp_path / "other")
    environ["CUDA_HOME"] = str(tmp_path / "other")
    environ["CUDACXX"] = str(tmp_path / "missing")
    for search in (find_nvcc, find_or_install_nvcc):
        with pytest.raises(BuildError, match=r"CUDACXX=.*missing.*is not a program"):
            search(environ)


def test_an_old_or_foreign_program_is_refused(tmp_path: Path, environ: Environment) -> None:
    environ["CUDACXX"] = str(make_nvcc(tmp_path / "old", "11.8.89"))
    with pytest.raises(BuildError, match=r"CUDA 11\.8\.89; 12\.0 or newer"):
        find_nvcc(environ)
    environ["CUDACXX"] = "/bin/true"
    with pytest.raises(BuildError, match="does not answer like nvcc"):
        find_nvcc(environ)


def test_the_message_without_any_compiler_says_how_to_get_one(environ: Environment) -> None:
    said = r"python -m flash_helpers\.build\.toolchain --install"
    with pytest.raises(BuildError, match=said):
        find_nvcc(environ)


def test_wheels_that_do_not_belong_together_are_named(tmp_path: Path, environ: Environment) -> None:
    packages = tmp_path / "packages"
    make_nvcc(packages / "nvidia" / "cu13")
    versions = {"nvidia-cuda-nvcc": "13.0.88", "nvidia-nvvm": "13.5.37"}
    for name, version in versions.items():
        info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    with pytest.raises(BuildError, match=r"nvidia-nvvm 13\.5\.37.*nvidia-nvvm==13\.0\.88"):
        find_nvcc(environ)


def test_nvcc_from_pypi_is_pinned_private_and_complete_or_absent(
    environ: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = tmp_path / "commands"
    pip = tmp_path / "python"
    pip.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{commands}"\nexit 1\n')
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(BuildError, match="could not be installed from PyPI"):
        find_or_install_nvcc(environ)
    arguments = commands.read_text().split()
    wanted = [f"{name}=={version}" for name, version in PINNED_WHEELS.items()]
    assert arguments[-len(wanted) :] == wanted
    assert "--no-deps" in arguments and "--target" in arguments
    assert list((tmp_path / "cache").iterdir()) == [], "a failed set-up leaves nothing behind"


def test_a_private_copy_that_others_can_write_is_refused(environ: Environment) -> None:
    make_nvcc(install_folder(environ) / "nvidia" / "cu13")
    install_folder(environ).chmod(0o777)
    with pytest.raises(BuildError, match="writable for somebody else"):
        find_nvcc(environ)


def test_the_host_compiler(tmp_path: Path) -> None:
    assert find_host_compiler({"PATH": "/usr/bin:/bin"}).path.name in ("g++", "c++", "clang++")
    with pytest.raises(BuildError, match="apt-get install g"):
        find_host_compiler({"PATH": str(tmp_path)})
    with pytest.raises(BuildError, match="CXX='gcc -O2' is not a program"):
        find_host_compiler({"PATH": "/usr/bin:/bin", "CXX": "gcc -O2"})
    old = tmp_path / "g++"
    old.write_text("#!/bin/sh\necho 'g++ (Debian 8.3.0-6) 8.3.0'\n")
    old.chmod(0o755)
    with pytest.raises(BuildError, match="too old"):
        find_host_compiler({"PATH": str(tmp_path)})


@pytest.mark.slow
def test_nvcc_from_pypi_compiles(environ: Environment, tmp_path: Path) -> None:
    """The real thing: 105 MB from the package index, and a kernel compiled with it."""
    nvcc = find_or_install_nvcc({**environ, "HOME": str(tmp_path)})
    assert nvcc.version == PINNED_WHEELS["nvidia-cuda-nvcc"]
    assert (nvcc.library_dir / "libcudart_static.a").is_file()
    source = tmp_path / "k.cu"
    source.write_text("__global__ void k(int* a) { a[threadIdx.x] = 1; }\nint main() {}\n")
    flags = ["-std=c++20", "-arch=sm_80", *nvcc.link_flags]
    command = [str(nvcc.path), *flags, str(source), "-o", str(tmp_path / "k")]
    subprocess.run(command, check=True, env=nvcc.env)
