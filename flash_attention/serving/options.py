"""The numbers that a serving call takes beside its tensors, checked."""

import numbers
from dataclasses import dataclass

import torch

from flash_helpers.base.words import kind_of
from flash_helpers.kernels.forward_args import MAX_SEQLEN
from flash_helpers.kernels.serve_args import NO_WINDOW

from ..checks.kinds import check_switch
from ..checks.scale import scale_or_default

MAX_SPLITS = 128
Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Options:
    """Checked. Of the window, NO_WINDOW stands for no limit."""

    scale: float
    left: int
    right: int
    softcap: float
    num_splits: int  # 0: as many as fill the GPU

    def is_limited(self) -> bool:
        """Whether some queries may see other keys than the last."""
        return min(self.left, self.right) < NO_WINDOW

    def n_window_keys(self) -> int:  # that a query sees at most; 0: the window does not say
        return 0 if NO_WINDOW in (self.left, self.right) else self.left + self.right + 1


def make_options(
    d_head: int,
    softmax_scale: float | None,
    causal: bool,
    window_size: Window,
    softcap: float,
    num_splits: int,
) -> Options:
    """Raises TypeError or ValueError, naming the argument."""
    check_switch("causal", causal)
    left, right = window(window_size)
    if not isinstance(num_splits, int) or isinstance(num_splits, bool):
        raise TypeError(f"num_splits is {kind_of(num_splits)}: expected an int")
    if not 0 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}: expected 0 (chosen here) to {MAX_SPLITS}")
    return Options(
        scale=scale_or_default(softmax_scale, d_head),
        left=left,
        right=0 if causal else right,
        softcap=_softcap(softcap),
        num_splits=num_splits,
    )


def window(window_size: Window) -> tuple[int, int]:
    """(left, right), NO_WINDOW where there is no limit. Raises TypeError."""
    sizes: object = window_size
    if isinstance(sizes, torch.Tensor) and sizes.is_cpu:  # flash-attn takes it, and draws it so
        sizes = sizes.tolist()
    if not isinstance(sizes, (tuple, list)) or len(sizes) != 2:
        raise TypeError(f"window_size is {window_size!r}: expected two ints, (left, right)")
    for size in sizes:
        if size is not None and (not isinstance(size, int) or isinstance(size, bool)):
            raise TypeError(f"window_size is {window_size!r}: expected two ints, (left, right)")
    left, right = (
        # No sequence is longer than MAX_SEQLEN.
        NO_WINDOW if size is None or not 0 <= size <= MAX_SEQLEN else size
        for size in sizes
    )
    return left, right


def _softcap(softcap: float) -> float:
    given: object = softcap
    if not isinstance(given, numbers.Real):
        raise TypeError(f"softcap is {kind_of(softcap)}: expected a number")
    if not 0.0 <= softcap <= 1e6 or 0.0 < softcap < 1e-6:
        raise ValueError(f"softcap is {softcap}: expected 0 (none), or 1e-6 to 1e6")
    return float(softcap)


def check_refused(**arguments: object) -> None:
    """Raises ValueError for an argument that only its default is taken of: None, False or 0."""
    for name, value in arguments.items():
        if value is None or (isinstance(value, numbers.Real) and value == 0):
            continue
        raise ValueError(f"{name} is given: it is not supported")


def one_of(given: dict[str, object]) -> object:
    """What was given under one of several names; None: nothing. Raises ValueError for two."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} are given: they are names of one argument")
    return next(iter(named.values()), None)
