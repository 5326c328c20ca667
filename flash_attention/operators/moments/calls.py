"""mean_var: the first half of layer normalisation."""

from __future__ import annotations

import torch

from ..checked import check_integer, check_tensor, check_word
from ..launching import is_one_operator, operator, run
from ..remembered import remembered
from ..rows.op import RowConfig, RowOp, as_rows, row_call

ALGORITHMS = ("two_pass", "welford")
KERNEL = RowOp("moments.kernels", "mean_var", (1, 2), moves=1)


@remembered
def mean_var(
    x: torch.Tensor, *, correction: int = 0, algorithm: str = "two_pass",
    config: RowConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(mean, variance) of the last dimension, both fp32, without it.

    x is fp16, bf16 or fp32, on a CUDA device or on the CPU (the emulator). The squares are divided
    by the length less `correction`. Rows of up to 32768 stay in registers; longer ones are read
    twice ("two_pass") or once ("welford"). No gradient flows. Raises TypeError or ValueError,
    naming the argument, before the launch; TritonVersionError for a missing or other triton.
    """
    check_tensor("x", x)
    check_word("algorithm", algorithm, ALGORITHMS)
    check_integer("correction", correction)
    _check_length(x, correction)
    if is_one_operator({"x": x}, config=config):
        mean, var = torch.ops.flash_attention.mean_var(x, correction, algorithm)
        return mean, var
    return _mean_var(x, correction, algorithm, config)


def _check_length(x: torch.Tensor, correction: int) -> None:
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}: its last dimension must have elements")
    if not 0 <= correction < x.shape[-1]:
        raise ValueError(
            f"correction is {correction}: allowed are 0 to {x.shape[-1] - 1}, less than the length"
        )


def _mean_var(
    x: torch.Tensor, correction: int, algorithm: str, config: RowConfig | None
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = x.shape[:-1]
    mean = torch.empty(shape, dtype=torch.float32, device=x.device)
    var = torch.empty_like(mean)
    if mean.numel():
        matrix = as_rows(x)
        rows, columns = matrix.shape
        tensors = (matrix, mean, var)
        call = row_call(
            rows, columns, tensors, (matrix,), numbers=(float(columns - correction),),
            WELFORD=algorithm == "welford",
        )  # fmt: skip
        run(KERNEL, call, tensors, config)
    return mean, var


@operator("mean_var")
def _mean_var_op(
    x: torch.Tensor, correction: int, algorithm: str
) -> tuple[torch.Tensor, torch.Tensor]:
    check_tensor("x", x)
    _check_length(x, correction)
    return _mean_var(x, correction, algorithm, None)
