"""Compiles triton_kernels.py to the PTX files beside it; needs no GPU.

    python -m venv triton && triton/bin/pip install triton==3.6.0
    triton/bin/python tests/emulator/data/make_triton_ptx.py [FOLDER]

Debug sections and the path of the source are left out, so the text is the same everywhere.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
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


def compile_ptx(function: str, types: list[str], constants: dict[str, int]) -> str:
    sys.path.insert(0, str(HERE))
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
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)
    head = f"// Triton {triton.__version__}, made by make_triton_ptx.py\n"
    launch = f"// warps {compiled.metadata.num_warps}, shared {compiled.metadata.shared}\n"
    return head + launch + _without_debug_information(compiled.asm["ptx"])


def _without_debug_information(ptx: str) -> str:
    files = "".join(
        f'\t.file\t{number} "{Path(name).name}"\n'
        for number, name in re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.M)
    )
    code = ptx[ptx.index(".version") : re.search(r"^\}", ptx, re.M).end()]  # type: ignore[union-attr]
    code = re.sub(r"^\s*//.*\n|[ \t]+//.*$|^\$L__\w+:\n(?=\s*\.loc)", "", code, flags=re.M)
    return code + "\n" + files


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, kernel in KERNELS.items():
        (folder / f"triton_{name}.ptx").write_text(compile_ptx(*kernel))


if __name__ == "__main__":
    main()
