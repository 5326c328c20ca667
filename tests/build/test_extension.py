"""The compiled module: what it links, what importing it costs, what it refuses."""

from __future__ import annotations

import subprocess

import pytest

from .conftest import Tree
from .remembered_calls import packed


def test_it_links_neither_torch_nor_the_driver(tree: Tree) -> None:
    command = ["readelf", "--dynamic", "--wide", str(tree.extension)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]\n") for line in text.splitlines() if "(NEEDED)" in line]
    allowed = {"libstdc++", "libgcc_s", "libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}
    allowed |= {"libdl", "libpthread", "librt"}  # before glibc 2.34
    assert needed and {name.split(".so")[0] for name in needed} <= allowed, needed
    assert "RUNPATH" not in text and "RPATH" not in text


def test_import_brings_nothing_else(tree: Tree) -> None:
    """No torch, no other module, no thread, and no library but those that it links."""
    lines = tree.run_with_extension("print(threads); print(*brought); print(*mapped)").split("\n")
    assert lines[:2] == ["1", ""]
    allowed = {"_C", "libstdc++", "libgcc_s", "libm", "libdl", "libpthread", "librt"}
    names = {name.split(".")[0] for name in lines[2].split()}
    assert "_C" in names and names <= allowed


def test_it_knows_what_it_is(tree: Tree) -> None:
    code = "print(_C.kernel_set(), _C.architectures(), len(_C.fingerprint()))\n"
    code += "print(_C.forward_args_size(), sorted(_C.kernel_names()) == _C.kernel_names())"
    lines = tree.run_with_extension(code).splitlines()
    assert lines == ["prog ['sm_80'] 64", "168 True"]


def test_another_build_has_another_fingerprint(tree: Tree) -> None:
    code = "print(_C.fingerprint())"
    tree.build()
    before = tree.run_with_extension(code)
    launcher = tree.root / "csrc" / "runtime" / "launcher.cpp"
    text = launcher.read_text()
    launcher.write_text(text + "// planted\n")
    tree.build()
    assert tree.run_with_extension(code) != before
    launcher.write_text(text)
    tree.build()
    assert tree.run_with_extension(code) == before


def launch(tree: Tree, arguments: str, prepare: str = "") -> str:
    code = f"{prepare}\ntry:\n    print('launched', _C.launch({arguments}))\n"
    code += "except Exception as error:\n    print(type(error).__mro__[:2], error)\n"
    return tree.run_with_extension(code)


@pytest.mark.parametrize("size", [0, 167, 169])
def test_arguments_of_another_size_are_refused(tree: Tree, size: int) -> None:
    said = launch(tree, f"0, bytes({size}), 0, 0")
    assert "ValueError" in said and f"args has {size} bytes: expected the 168" in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch": 0}, "batch = 0"),
        ({"seqlen_q": 65}, "only for seqlen_q and seqlen_k that are multiples of B_r = 64"),
        ({"seqlen_k": 96}, "multiples of B_r = 64 and B_c = 64, not causal"),
        ({"causal": True}, "not causal"),
        ({"seqlen_k": 0, "k": 0, "v": 0}, "this build has it only for"),
        ({"seqlen_k": -64}, "seqlen_k = -64: expected 0 to 2147482623"),
        ({"seqlen_q": 2**31 - 64}, "seqlen_q = 2147483584: expected 0 to 2147482623"),
        ({"n_heads_q": 3, "n_heads_kv": 2}, "n_heads_q = 3: expected a multiple of n_heads_kv"),
        ({"k": 0}, "k is null"),
        ({"v": 4104}, "v is not aligned to 16 bytes"),
        ({"o_strides": (8192, 128, 4)}, "o_stride_head = 4 elements: expected a multiple of 8"),
        ({"batch": 2**31 - 1, "n_heads_q": 2}, "(of 64 rows) * n_heads_q * batch exceed"),
    ],
)
def test_arguments_that_would_fault_are_refused(
    tree: Tree, changes: dict[str, object], expected: str
) -> None:
    said = launch(tree, f"0, {packed(**changes)}, 0, 0")
    assert "ValueError" in said and expected in said, said


def test_an_unknown_kernel_is_refused(tree: Tree) -> None:
    assert "IndexError" in launch(tree, f"2, {packed()}, 0, 0")
    assert "TypeError" in launch(tree, f"-1, {packed()}, 0, 0")
    assert "TypeError" in launch(tree, f"0, bytearray({packed()}), 0, 0")


def test_without_a_driver_a_launch_is_an_error_not_a_crash(tree: Tree) -> None:
    prepare = "import os\nif _C.device_count(): print('there is a device'); sys.exit(0)"
    said = launch(tree, f"0, {packed()}, 0, 0", prepare)
    if "there is a device" in said:
        pytest.skip("this machine has a driver and a device")
    assert "CudaError" in said and "RuntimeError" in said
    assert "cudaGetDevice" in said and "device_guard.h" in said
    again = tree.run_with_extension("print(_C.device_count())")
    assert again.strip() == "0"
