"""A repeated launch gives Triton's launcher what Triton itself gives it, in every release."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

pytest.importorskip("triton")

from triton import knobs
from triton.runtime import driver

from flash_attention.operators.elementwise.op import Elementwise
from flash_attention.operators.elementwise.problem import elements
from flash_attention.triton_kit.launched import Launched, noted
from flash_attention.triton_kit.machine import Gpu, ready

STREAM, FUNCTION = 11, 22


class Launcher:
    """In place of the one that Triton makes for a kernel."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, source: Any, metadata: Any) -> None:
        pass

    def __call__(self, *args: Any) -> None:
        self.calls.append(args)


class Driver:
    """Of a GPU on which nothing runs."""

    launcher_cls = Launcher

    def __init__(self) -> None:
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 2**18},
            load_binary=lambda *_: (1, FUNCTION, 32, 0, 1024),
        )

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 80, 32)

    def get_current_device(self) -> int:
        return -1080  # no GPU's, and not that of kernels that are compiled without one

    def get_current_stream(self, device: int) -> int:
        return STREAM


def test_a_repeated_launch_is_triton_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_active", Driver())
    monkeypatch.setattr(Launcher, "calls", [])
    x, y, out = torch.zeros(3, 1000)
    op, problem = Elementwise("add"), elements((x, y, out), 0.0, True)
    config = op.default(problem)
    arguments = op.arguments(config, problem, (x, y, out))
    kernel = op.kernel_for(config, problem)[(1, 2, 3)](*arguments, **op.options(config, problem))
    with noted() as launches:
        op.note(config, problem, kernel, (1, 2, 3), arguments)
    (launch,) = launches
    assert isinstance(launch, Launched) and launch.written == (2,)
    Gpu().starter(launch)(STREAM, launch.arguments)
    (wanted, got) = Launcher.calls
    grid_and_kernel = 6  # three of the grid, the stream, the function, the packed options
    assert got[:grid_and_kernel] == wanted[:grid_and_kernel] and got[4] == FUNCTION
    assert got[grid_and_kernel : grid_and_kernel + 3] == (None, None, None)  # no hooks, no metadata
    own, its = got[grid_and_kernel + 3 :], wanted[grid_and_kernel + 3 :]
    assert len(own) == len(its)
    assert all(a is b or a == b for a, b in zip(own, its, strict=True))


def test_memory_is_as_torch_makes_it() -> None:
    """On a GPU; without one, that the function that PyTorch's compiled code calls is there."""
    if not torch.cuda.is_available():
        assert callable(Gpu().empty)
        return
    made = Gpu().empty((3, 5), (1, 3), torch.float16)
    assert made.shape == (3, 5) and made.stride() == (1, 3) and made.is_cuda


def test_hooks_at_launches_are_seen() -> None:
    """Before the GPU is asked for, which may not be there."""

    def hook(*_: Any) -> None:
        pass

    knobs.runtime.launch_exit_hook.add(hook)
    try:
        assert not ready(Gpu())(0)
    finally:
        knobs.runtime.launch_exit_hook.remove(hook)
