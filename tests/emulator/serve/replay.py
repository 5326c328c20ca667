"""Launches of serving calls, kept: run again with other kernels in their place, under other
schedules, from the same memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch

from flash_attention import emulated
from flash_attention.serving import launch, splits
from flash_helpers.emulator import EmulatedKernel, LaunchOptions, LaunchReport, MemoryRange
from flash_helpers.kernels.contract import KernelConfig, Variant
from tests.serving.problems import poisoned_memory

from ..planting import WRONG
from ..work import TOO_MUCH, Work


@dataclass(frozen=True)
class Launch:
    """One kernel's launch: what lay in its memory before, and what a kernel without a fault leaves
    there."""

    config: KernelConfig
    variant: Variant
    arguments: dict[str, Any]
    before: tuple[bytes, ...]  # of each range of memory
    after: tuple[bytes, ...]
    work: Work
    tensors: Sequence[dict[str, torch.Tensor]]  # whose memory it is

    def wrong(self, kernel: EmulatedKernel, options: LaunchOptions | None = None) -> str:
        """What is wrong with a run of `kernel`, '' for nothing: every bit is the same each time."""
        ranges = self.arguments["memory"]
        for place, content in zip(ranges, self.before, strict=True):
            ctypes.memmove(place.address, content, place.n_bytes)
        given = self.arguments.get("options", LaunchOptions())
        options = replace(options or given, ordered_sums=given.ordered_sums)
        report = kernel.launch(**self.arguments | {"options": options})
        if _contents(ranges) != self.after:
            return WRONG
        return "" if Work.done(report) == self.work else TOO_MUCH


def _contents(ranges: Sequence[MemoryRange]) -> tuple[bytes, ...]:
    return tuple(ctypes.string_at(place.address, place.n_bytes) for place in ranges)


@dataclass
class _Recorder:
    """In an EmulatedKernel's place."""

    config: KernelConfig
    variant: Variant
    kernel: EmulatedKernel
    found: list[Launch]
    tensors: Sequence[dict[str, torch.Tensor]]

    def launch(self, **arguments: Any) -> LaunchReport:
        before = _contents(arguments["memory"])
        report = self.kernel.launch(**arguments)
        after = _contents(arguments["memory"])
        self.found.append(
            Launch(
                self.config, self.variant, arguments, before, after, Work.done(report), self.tensors
            )
        )
        return report


def recorded(call: Callable[[], object]) -> list[Launch]:
    """What `call` launches on CPU tensors, in its order."""
    found: list[Launch] = []
    used: list[dict[str, torch.Tensor]] = []
    real = emulated.emulated_kernel

    def recorder(config: KernelConfig, variant: Variant | None = None) -> _Recorder:
        chosen = variant or config.first_variant()
        return _Recorder(config, chosen, real(config, chosen), found, used)

    def keeping(function: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            used.extend(x for x in arguments if isinstance(x, dict))
            function(*arguments)

        return run

    with (
        poisoned_memory(),
        mock.patch.object(emulated, "emulated_kernel", recorder),
        mock.patch.object(emulated, "launch_serving", keeping(emulated.launch_serving)),
        mock.patch.object(emulated, "launch_backward", keeping(emulated.launch_backward)),
    ):
        call()
    return found


@contextmanager
def served_by(config: KernelConfig, multiprocessors: int) -> Iterator[None]:
    """Calls get the kernels of `config`, on a GPU of so many multiprocessors."""
    with (
        mock.patch.object(launch, "choose", lambda call: config),
        mock.patch.object(splits, "EMULATED_MULTIPROCESSORS", multiprocessors),
        mock.patch.object(emulated, "EMULATED_MULTIPROCESSORS", multiprocessors),
    ):
        yield
