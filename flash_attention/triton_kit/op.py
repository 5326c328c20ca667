"""What the kit needs to know of a Triton or Gluon kernel. From this one description a kernel is
launched (here), emulated (emulated.py), compiled for a GPU that need not be there (offline.py),
tuned, and found in the cache again (tuning.py)."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from .launched import Launched, noting

# Options of every compilation. Triton's own default comes from the environment, and will change.
COMPILE_OPTIONS = {"enable_fp_fusion": True}
Grid = tuple[int, int, int]


class Config(Hashable, Protocol):
    """A configuration: a frozen dataclass of numbers, words and switches, each with a default."""

    def as_dict(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=Config)
P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True)
class Work:
    """What a problem costs at least: floating-point operations, bytes read and written."""

    flop: int
    n_bytes: int


class StandInTensor:
    """What Triton wants to know of a contiguous tensor that it will not touch; `dtype` is a name of
    torch's, such as "float16". `address`: not a multiple of 16 for code that relies on none."""

    def __init__(self, shape: tuple[int, ...], dtype: str, address: int = 0) -> None:
        self.shape, self.dtype, self.address = shape, dtype, address

    def stride(self) -> tuple[int, ...]:
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def data_ptr(self) -> int:
        return self.address


class Op(ABC, Generic[C, P]):
    """A kernel. C is the class of its configurations, P that of its problems (sizes and element
    types of a call); both are hashable, as is the Op. Tensors are torch's or StandInTensors: only
    shape, strides, dtype and address may be asked for. The kernel's numbers should be in its
    do_not_specialize: else the code is another one for the values that Triton treats specially."""

    name: str  # in messages, and in the key of the tuning cache
    config_type: type[C]
    written: Sequence[int]  # positions of the tensors that the kernel writes to
    zeroed: Sequence[int] = ()  # of those that it finds zero, and leaves zero
    architecture: int = 80  # sm_<architecture>: what is compiled for if nothing else is asked for
    contiguous: bool = True  # the offline code is for contiguous tensors only

    @abstractmethod
    def kernel(self) -> Any:
        """What @triton.jit or @gluon.jit made; triton is imported no sooner."""

    def kernel_for(self, config: C, problem: P) -> Any:
        """The kernel of one problem, where an Op has several."""
        return self.kernel()

    @abstractmethod
    def space(self, problem: P, architecture: int) -> Sequence[C]:
        """The configurations worth measuring on sm_<architecture>, the default first."""

    @abstractmethod
    def problems(self, config: C, problem: P) -> list[str]:
        """Why a configuration cannot be built for a problem; empty if it can."""

    @abstractmethod
    def arguments(self, config: C, problem: P, tensors: Sequence[Any]) -> list[Any]:
        """What is passed by position: the tensors, or descriptors of them, then numbers."""

    @abstractmethod
    def constants(self, config: C, problem: P) -> dict[str, Any]:
        """The compile-time arguments by name, and Triton's options, such as num_warps."""

    @abstractmethod
    def grid(self, config: C, problem: P, processors: int) -> Grid:
        """The programs of a launch, on a GPU of so many multiprocessors; or the clusters."""

    def cluster(self, config: C, problem: P) -> int:
        """The programs of a cluster, along the grid's first dimension."""
        return 1

    @abstractmethod
    def stand_ins(self, problem: P) -> Sequence[StandInTensor]:
        """The tensors of a call."""

    @abstractmethod
    def key(self, problem: P) -> dict[str, Any]:
        """All of the problem that the fastest configuration may depend on, as JSON."""

    @abstractmethod
    def work(self, problem: P) -> Work: ...

    def default(self, problem: P) -> C:
        """What is used where nothing was tuned."""
        return self.space(problem, self.architecture)[0]

    def code(self, config: C, problem: P) -> tuple[C, P]:
        """The same for all that have the same code: it is then compiled once."""
        return config, problem

    def check_device(self, device: torch.device) -> None:
        """Raises ValueError for a GPU that the kernel does not run on."""

    def checked(self, config: C | None, problem: P) -> C:
        """The configuration to use. Raises TypeError or ValueError for one that cannot be built."""
        if config is None:
            return self.default(problem)
        if not isinstance(config, self.config_type):
            found, expected = type(config).__name__, self.config_type.__name__
            raise TypeError(f"config is a {found}: expected a {expected}")
        if reasons := self.problems(config, problem):
            raise ValueError(f"{config} cannot be built: {'; '.join(reasons)}")
        return config

    def options(self, config: C, problem: P) -> dict[str, Any]:
        """All that is passed by name."""
        return {**self.constants(config, problem), **COMPILE_OPTIONS}

    def launch(self, config: C, problem: P, tensors: Sequence[torch.Tensor]) -> None:
        """Puts the kernel on the current stream of the tensors' device; arguments are checked."""
        device = tensors[0].device
        grid = self.grid(config, problem, _processors(device))
        arguments, options = self.arguments(config, problem, tensors), self.options(config, problem)
        with torch.cuda.device(device):
            kernel = self.kernel_for(config, problem)[grid](*arguments, **options)
        self.note(config, problem, kernel, grid, arguments)

    def note(
        self, config: C, problem: P, kernel: Any, grid: Grid, arguments: Sequence[Any]
    ) -> None:
        """Tells those who note launches (launched.noted) of this one, of a compiled `kernel`."""
        if (launches := noting()) is not None:
            names = self.kernel_for(config, problem).arg_names[len(arguments) :]
            options = self.options(config, problem)
            every = (*arguments, *(options[name] for name in names))
            launches.append(Launched(kernel, grid, every, tuple(self.written), tuple(self.zeroed)))

    def folder(self) -> Path:
        """Where the kernel and its space are written, in Python files of whatever name."""
        return Path(inspect.getfile(type(self))).parent


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
