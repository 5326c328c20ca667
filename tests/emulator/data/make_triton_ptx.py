"""Compiles triton_kernels.py and gluon_kernels.py to the PTX files beside them; needs no GPU.

    pip install --target triton-3.6.0 --no-deps triton==3.6.0
    PYTHONPATH=triton-3.6.0 python tests/emulator/data/make_triton_ptx.py [FOLDER]

The files that are stored are of 3.6.0; every release that the kernels work with makes its own.
Debug sections and the path of the source are left out, so the text is the same everywhere.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# name: (function, types of the arguments, constants)
KERNELS: dict[str, tuple[str, list[str], dict[str, int]]] = {
    "add": ("add", ["*fp32", "*fp32", "*fp32", "i32"], {"BLOCK": 512}),
    "softmax": ("softmax", ["*fp32", "*fp32", "i32"], {"BLOCK": 256}),
    **{
        f"matmul_{t}": ("matmul", [f"*{t}", f"*{t}", "*fp32", *["i32"] * 3],
                        {"BM": 32, "BN": 32, "BK": 32})
        for t in ("fp16", "bf16", "fp32")
    },
}  # fmt: skip


# Gluon, for sm_90a; name: (function, element type, blocks of the descriptors, constants)
GLUON_KERNELS: dict[str, tuple[str, str, list[list[int]], dict[str, int]]] = {
    f"gluon_matmul_{t}": ("gluon_matmul", t, [[128, 64], [64, 64], [128, 64]], {"STAGES": 3})
    for t in ("fp16", "bf16")
}


def compile_ptx(function: str, types: list[str], constants: dict[str, int]) -> str:
    import triton
    import triton_kernels
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = getattr(triton_kernels, function).arg_names
    constant_types = dict.fromkeys(constants, "constexpr")
    signature = dict(zip(names, types, strict=False)) | constant_types
    # Pointers, and the sizes of a matrix, are multiples of 16; other sizes are not.
    multiples = [i for i, t in enumerate(types) if t[0] == "*" or function == "matmul"]
    attributes: Any = {(i,): [["tt.divisibility", 16]] for i in multiples}
    source = ASTSource(getattr(triton_kernels, function), signature, constants, attributes)
    options = {"num_warps": 4, "num_stages": 3}
    return _text(triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options))


def compile_gluon_ptx(
    function: str, element: str, blocks: list[list[int]], constants: dict[str, int]
) -> str:
    """A kernel of descriptors and one number, on eight warps beside those of the partitions."""
    import gluon_kernels
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    layouts = [gl.NVMMASharedLayout.get_default_for(block, gl.float16) for block in blocks]
    types = [
        *(
            f"tensordesc<{element}{b},{layout!r}>"
            for b, layout in zip(blocks, layouts, strict=True)
        ),
        "i32",
    ]
    kernel = getattr(gluon_kernels, function)
    signature = dict(zip(kernel.arg_names, types, strict=False))
    signature |= dict.fromkeys(constants, "constexpr")
    source = GluonASTSource(kernel, signature, constants)
    return _text(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}))


def _text(compiled: Any) -> str:
    """The PTX, behind what is needed to launch it."""
    import triton

    metadata = compiled.metadata
    head = f"// Triton {triton.__version__}, made by make_triton_ptx.py\n"
    head += f"// warps {metadata.num_warps}, shared {metadata.shared}\n"
    if metadata.tensordesc_meta:
        head += f"// descriptors {json.dumps(metadata.tensordesc_meta)}\n"
    return head + _without_debug_information(compiled.asm["ptx"])


def _without_debug_information(ptx: str) -> str:
    files = "".join(
        f'\t.file\t{number} "{Path(name).name}"\n'
        for number, name in re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.M)
    )
    end = re.search(r"^\$L__func_end0:.*?^\}", ptx, re.M | re.S)
    assert end
    code = ptx[ptx.index(".version") : end.end()]
    code = re.sub(r"^\s*//.*\n|[ \t]+//.*$|^\$L__\w+:\n(?=\s*\.loc)", "", code, flags=re.M)
    return code + "\n" + files


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    sys.path[:0] = [str(HERE), str(ROOT / "py"), str(ROOT)]
    texts = {f"triton_{name}": compile_ptx(*kernel) for name, kernel in KERNELS.items()}
    texts |= {name: compile_gluon_ptx(*kernel) for name, kernel in GLUON_KERNELS.items()}
    for name, text in texts.items():
        (folder / f"{name}.ptx").write_text(text)


if __name__ == "__main__":
    main()
