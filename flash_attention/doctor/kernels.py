"""Where kernels come from here, which tuning tables count, which family serves what, and whether
one kernel is right."""

import itertools
import os
import warnings
from functools import partial
from pathlib import Path

import torch

from flash_helpers.base.dtypes import DType
from flash_helpers.check.reference import attention_reference
from flash_helpers.check.tolerance import compare
from flash_helpers.kernels.problem import AttentionProblem
from flash_helpers.kernels.registry import families, family_of

from .. import heads, jit
from ..front_door import flash_attn_func
from ..interface import built_kernel_id
from ..library import LIBRARY_VARIABLE, LibraryNotFoundError, library_info
from ..tuning import PACKAGED_TABLE, TABLE_VARIABLE, gpu_of, user_table
from ..tuning_table import read_table
from .records import Check


def checks() -> list[Check]:
    rebuild = f"build it again (make build, or pip install), or correct {LIBRARY_VARIABLE}"
    needed = torch.cuda.is_available() or os.environ.get(LIBRARY_VARIABLE)
    correct = f"correct it, move it away, or change {TABLE_VARIABLE}"
    named = os.environ.get(TABLE_VARIABLE)
    tables = {"packaged": PACKAGED_TABLE} | ({"named": Path(named)} if named else {})
    pairs = sorted(
        {(f.GRADIENTS, d) for f in families() if not f.SERVES for d in f.HEAD_DIMENSIONS}
    )
    return [
        Check("kernels", "build", _build, rebuild, () if needed else LibraryNotFoundError),
        Check("kernels", "first use", _first_use, f"correct {jit.VARIABLE}", LookupError),
        *(Check("tuning", name, partial(_table, path), correct) for name, path in tables.items()),
        Check("tuning", "user's", lambda: _table(user_table()), correct, FileNotFoundError),
        *(Check("served by", f"{'backward' if gradients else 'forward'} {d_head}",
                partial(_serving, gradients, d_head), "see the lines above", ValueError)
          for gradients, d_head in pairs),
        Check("self-test", "one call", _self_test, "see above; a wrong result is to be reported"),
    ]  # fmt: skip


def _device() -> torch.device:
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def _build() -> str:
    info = library_info()
    targets = ", ".join(info.architectures)
    return f"{info.n_kernels} kernels (KERNELS={info.kernel_set}) for {targets}, {info.path}"


def _first_use() -> str:
    if refusal := jit.refusal():
        raise LookupError(f"a kernel that the build lacks {refusal}")
    return "a kernel that the build lacks is compiled by NVRTC"


def _table(path: Path) -> str:
    entries, (gpu, _) = read_table(path), gpu_of(None)
    here = f", {sum(entry.gpu == gpu for entry in entries)} of this GPU" if gpu else ""
    return f"{len(entries)} entries{here}, {path}"


def _serving(gradients: bool, d_head: int) -> str:
    """Of every dtype, with and without the mask: those that are served alike together."""
    served: dict[str, list[str]] = {}
    for dtype, causal in itertools.product(DType, (False, True)):
        problem = AttentionProblem(
            dtype, 1, 1024, 1024, 1, 1, d_head, causal=causal, gradients=gradients
        )
        case = f"{dtype.name.lower()}{' causal' if causal else ''}"
        served.setdefault(_server(problem), []).append(case)
    return "; ".join(f"{server}: {', '.join(cases)}" for server, cases in served.items())


def _server(problem: AttentionProblem) -> str:
    with warnings.catch_warnings():  # about tables, which have lines of their own
        warnings.simplefilter("ignore")
        config = heads.kernels(problem, _device())
    how = "emulated"
    if _device().type == "cuda":
        variant = config.variant_for(problem.seqlen_q, problem.seqlen_k, problem.causal)
        how = "compiled on first use" if built_kernel_id(config, variant) is None else "built"
    return f"{family_of(config).TITLE} family, {how}"


def _self_test() -> str:
    problem = AttentionProblem.self_attention(DType.FP16, 1, 64, 1, 128)
    q, k, v = problem.tensors(0, _device())
    output = flash_attn_func(q, k, v)
    assert isinstance(output, torch.Tensor)
    found = compare(output, attention_reference(q, k, v, fp64=True)[0])
    if not found.passed:
        raise ArithmeticError(found.describe())
    return f"{problem} on {_device()}: {found.describe()}"
