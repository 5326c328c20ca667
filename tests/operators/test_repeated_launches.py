"""Repeated calls that go from C++ to the driver, which here notes what it gets."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from triton.backends.nvidia import driver as nvidia

from flash_attention.library import load_library
from flash_attention.triton_kit.again import Again, Memory, Step, again
from flash_attention.triton_kit.launched import Launched
from flash_attention.triton_kit.launchers import Packed, packed
from flash_attention.triton_kit.machine import ready
from tests.operators.stand_in_machine import EXCHANGE_API, StandInMachine

_WORD = ctypes.c_uint64
_REPLACE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_WORD), _WORD)
WATCHED: ContextVar[Any] = ContextVar("watched", default=None)
_FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int, _WORD, *[ctypes.c_uint] * 7, _WORD, ctypes.POINTER(ctypes.POINTER(_WORD)), _WORD
)
SIGNATURE = {"x": "*fp16", "out": "*fp16", "n": "i32", "BLOCK": "constexpr", "eps": "fp32"}
OF_HALF = struct.unpack("<I", struct.pack("<f", 0.5))[0]


class Driver:
    """`launched`: function, grid, block, shared memory, stream and the first parameters."""

    def __init__(self, count: int = 6, status: int = 0) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.count, self.status = count, status
        self._function = _FUNCTION(self._launch)
        self._replace = _REPLACE(self._replaced)
        self.replaced: list[int] = []

    def _launch(self, *given: Any) -> int:
        *sizes, parameters, _ = given
        self.launched.append((*sizes, [parameters[i][0] for i in range(self.count)]))
        return self.status

    @property
    def address(self) -> int | None:
        return ctypes.cast(self._function, ctypes.c_void_p).value

    def _replaced(self, words: Any, address: int) -> int:
        """A map begins with its address."""
        self.replaced.append(address)
        words[0] = address
        return self.status

    @property
    def replace_address(self) -> int | None:
        return ctypes.cast(self._replace, ctypes.c_void_p).value


class Machine(StandInMachine):
    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    @property
    def repeated(self) -> Callable[..., Any]:
        made = load_library().RepeatedLaunches
        return partial(made, self._driver.address, self._driver.replace_address, EXCHANGE_API)


def launched(*values: Any, signature: dict[str, Any] = SIGNATURE, **other: Any) -> Launched:
    run: Any = object.__new__(nvidia.CudaLauncher)
    run.__dict__ = {
        "global_scratch_size": 0, "profile_scratch_size": 0, "launch_cooperative_grid": False,
        "launch_pdl": False, **other,
    }  # fmt: skip
    kernel = SimpleNamespace(
        run=run, function=22, packed_metadata=(4, other.get("num_ctas", 1), 1024),
        src=SimpleNamespace(signature=signature),
    )  # fmt: skip
    return Launched(kernel, (2, 3, 1), values, (1,))


X = torch.zeros(64)
PACKED = Packed(22, (2, 3, 1), 128, 1024, (0, 0, 5, OF_HALF, 0, 0), (0, 1))


def test_a_launch_as_the_driver_gets_it() -> None:
    assert packed(launched(X, X, 5, 64, 0.5)) == PACKED
    negative = packed(launched(X, X, -1, 64, 0.5))
    assert negative is not None and negative.parameters[2] == 2**32 - 1


@pytest.mark.parametrize("other", [
    {"global_scratch_size": 8}, {"profile_scratch_size": 8}, {"launch_cooperative_grid": True},
    {"launch_pdl": True}, {"num_ctas": 2}, {"gsan_enabled": True},
    {"signature": {**SIGNATURE, "eps": "another type"}},
    {"signature": {"x": "*fp16"}},
], ids=str)  # fmt: skip
def test_other_kernels_go_to_triton(other: dict[str, Any]) -> None:
    assert packed(launched(X, X, 5, 64, 0.5, **other)) is None


def repeated(machine: Machine, memory: Memory, result: tuple[int, ...], *at: int) -> Again:
    def start(*_: Any) -> None:
        pytest.fail("it went to Triton")

    steps = [Step(start, at[i : i + 2], (), packed=PACKED) for i in range(0, len(at), 2)]
    return again(machine, 0, steps, memory, result, single=len(result) == 1)


MADE = (((4, 8), (8, 1), torch.float16),)
MEMORY = Memory(needed=((64, 2),), apart=(), made=MADE)


def call(go: Again, *given: torch.Tensor) -> Any:
    return go(list(given), [tensor.data_ptr() for tensor in given])


def test_outputs_are_made_and_launches_get_addresses() -> None:
    driver = Driver()
    x = torch.zeros(64).half()
    memory = Memory(needed=((64, 2),), apart=(), made=MADE, scratch=(0, 512), scratch_bytes=1024)
    go = repeated(Machine(driver), memory, (1, 0), 0, 3, 2, 1)
    made, same = call(go, x)
    assert same is x and made.shape == (4, 8) and made.dtype == torch.float16
    (*sizes, first), (*_, second) = driver.launched
    assert sizes == [22, 2, 3, 1, 128, 1, 1, 1024, 7]
    assert first[0] == x.data_ptr() and first[1] == second[0] + 512
    assert second[1] == made.data_ptr()
    assert first[2:] == second[2:] == [5, OF_HALF, 0, 0]
    assert call(repeated(Machine(driver), MEMORY, (1,), 0, 1), x).shape == (4, 8)


def test_memory_that_is_missing_or_shared_is_for_the_checks() -> None:
    driver = Driver()
    memory = Memory(needed=((64, 2), (64, 2)), apart=((1, 0),), made=())
    go = repeated(Machine(driver), memory, (1,), 0, 1)
    x, y = torch.zeros(2, 32).half()
    assert call(go, x, y) is y
    both = torch.zeros(63).half()
    assert call(go, both[:32], both[31:]) is None
    small = torch.zeros(32).half()
    small.untyped_storage().resize_(62)
    assert call(go, x, small) is None and len(driver.launched) == 1


def test_a_machine_that_is_not_ready() -> None:
    machine = Machine(Driver())
    go = repeated(machine, MEMORY, (1,), 0, 1)
    machine.is_ready = False
    assert call(go, X.half()) is None


@pytest.mark.parametrize(
    ("hook", "goes"),
    [
        (None, True), (SimpleNamespace(calls=[]), True), (print, False),
        (SimpleNamespace(calls=[print]), False),
    ],
)  # fmt: skip
def test_hooks_at_launches_are_seen_at_every_call(hook: Any, goes: bool) -> None:
    machine = Machine(Driver())
    go = repeated(machine, MEMORY, (1,), 0, 1)
    for machine.hook in (None, hook, None):
        found = call(go, X.half())
        assert (found is not None) == (goes or machine.hook is None) == ready(machine)(0)


MAPPED = replace(PACKED, parameters=(0, 0, 5), maps={0: (bytes(range(128)), 0x0706050403020100)})


def mapped(driver: Driver, of: Packed = MAPPED) -> Again:
    def start(*_: Any) -> None:
        driver.launched.append(("it went to Triton",))

    steps = [Step(start, (0, 1), (), packed=of)]
    return again(Machine(driver), 0, steps, MEMORY, (1,), single=True)


def test_a_map_is_that_of_the_tensor_of_the_call() -> None:
    driver = Driver(count=3)
    go = mapped(driver)
    x, y = torch.zeros(2, 64).half()
    first = driver.replaced[:]
    results = [call(go, tensor) for tensor in (x, x, y, x)]
    at = [x.data_ptr(), y.data_ptr()]
    # Where it is already, it is not put again.
    assert first == [MAPPED.maps[0][1]] and driver.replaced[1:] == [at[0], at[1], at[0]]
    parameters = [launch[-1] for launch in driver.launched]
    assert [given[0] for given in parameters] == [at[0], at[0], at[1], at[0]]
    assert [given[1] for given in parameters] == [made.data_ptr() for made in results]
    assert all(given[2] == 5 for given in parameters)


@pytest.mark.parametrize("what", [
    {"maps": {0: (bytes(128), 16)}}, {"maps": {0: (bytes(64), 0)}},
])  # fmt: skip
def test_what_is_no_map_goes_to_triton(what: dict[str, Any]) -> None:
    driver = Driver(count=3)
    call(mapped(driver, replace(MAPPED, **what)), X.half())
    assert driver.launched == [("it went to Triton",)]


def test_an_address_that_the_driver_refuses() -> None:
    driver = Driver()
    go = mapped(driver)
    driver.status = 1
    with pytest.raises(load_library().CudaError, match="cuTensorMapReplaceAddress returned 1"):
        call(go, X.half())


@pytest.mark.parametrize("status", [3, 201])
def test_a_thread_without_a_context_goes_to_triton(status: int) -> None:
    go = repeated(Machine(Driver(status=status)), MEMORY, (1,), 0, 1)
    assert call(go, X.half()) is None


def test_a_launch_that_fails_is_an_error() -> None:
    go = repeated(Machine(Driver(status=700)), MEMORY, (1,), 0, 1)
    with pytest.raises(load_library().CudaError, match="of an operator returned 700"):
        call(go, X.half())


def test_errors_of_python_pass() -> None:
    go = repeated(Machine(Driver()), MEMORY, (1,), 0, 1)
    with pytest.raises(AttributeError):
        go([None], [16])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        go([X], ["16"])  # type: ignore[list-item]
    assert go([X, X], [16, 16]) is None


def test_positions_that_there_are_not() -> None:
    make = Machine(Driver()).repeated
    with pytest.raises(ValueError, match="positions that there are not among 1 tensors"):
        step: Any = (1, (1, 1, 1), 32, 0, (0,), [(0, 1)], [])
        make([], *[None] * 3, 0, [(64, 2)], [], [], [], [step], [0], True)


class Calls:
    """What finds calls in C++, with one of it: `like` and `launches` are noted."""

    def __init__(self) -> None:
        self.now = SimpleNamespace(busy=None, alike=True, grad=False, _current_level=-1)
        self.given: list[Any] = []
        self.alike: list[int] = []  # how many tensors were asked about
        kinds = [type(None), bool, int, float, str]
        self.made = load_library().RememberedCalls(
            [lambda: self.now.busy, WATCHED], self.now, lambda: self.now.grad, [torch.Tensor],
            kinds, EXCHANGE_API,
        )  # fmt: skip

    def remember(self, *given: Any, **named: Any) -> None:
        def launches(tensors: list[torch.Tensor], at: list[int]) -> str:
            self.given.append((tensors, at))
            return "done"

        def like(*tensors: torch.Tensor) -> bool:
            self.alike.append(len(tensors))
            return bool(self.now.alike)

        self.made.remember(given, named, like, launches)

    def again(self, *given: Any, **named: Any) -> Any:
        return self.made.again(given, named)


Y = torch.zeros(64)
FOUND = (X, 2, 0.5, "silu", None, Y), {"on": True, "by": 0.0}
LIKE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "another number": ((X, 3, 0.5, "silu", None, Y), FOUND[1]),
    "another type": ((X, 2.0, 0.5, "silu", None, Y), FOUND[1]),
    "another word": ((X, 2, 0.5, "relu", None, Y), FOUND[1]),
    "another sign of zero": (FOUND[0], {"on": True, "by": -0.0}),
    "a number for a switch": (FOUND[0], {"on": 1, "by": 0.0}),
    "another name": (FOUND[0], {"on": True, "but": 0.0}),
    "another order": (FOUND[0], {"by": 0.0, "on": True}),
    "fewer": ((X, 2, 0.5, "silu", None, Y), {"on": True}),
    "a list": ((X, [2], 0.5, "silu", None, Y), FOUND[1]),
    "a parameter": ((torch.nn.Parameter(X), *FOUND[0][1:]), FOUND[1]),
    "no tensor": ((None, 2, 0.5, "silu", None, None), FOUND[1]),
    "one tensor twice": ((X, 2, 0.5, "silu", None, X), FOUND[1]),
    "two tensors in one place": ((X, 2, 0.5, "silu", None, X.view(64)), FOUND[1]),
    "misaligned": ((torch.zeros(65)[1:], *FOUND[0][1:]), FOUND[1]),
    "nothing": ((), {}),
}


def test_a_call_is_found_by_what_it_was_called_with() -> None:
    calls = Calls()
    assert calls.again(*FOUND[0], **FOUND[1]) is None
    calls.remember(*LIKE["another number"][0], **FOUND[1])
    calls.remember(*FOUND[0], **FOUND[1])
    x = torch.ones(64)
    given = (x, 2, 1 / 2, "".join(["si", "lu"]), None, Y)
    assert calls.again(*given, **FOUND[1]) == "done"
    ((tensors, at),) = calls.given
    assert tensors[0] is x and tensors[1] is Y and at == [x.data_ptr(), Y.data_ptr()]


@pytest.mark.parametrize("what", ["one tensor twice", "two tensors in one place", "misaligned"])
def test_a_call_is_found_by_where_its_tensors_are(what: str) -> None:
    calls = Calls()
    for others in LIKE:
        if others != what:
            calls.remember(*LIKE[others][0], **LIKE[others][1])
    calls.remember(*FOUND[0], **FOUND[1])
    (x, *_, y), named = LIKE[what]
    assert calls.again(x, 2, 0.5, "silu", None, y, **named) is None
    calls.remember(*LIKE[what][0], **named)
    assert calls.again(x, 2, 0.5, "silu", None, y, **named) == "done"
    assert calls.alike[-1] == (1 if y is x else 2)


@pytest.mark.parametrize("what", LIKE)
def test_other_calls_are_not_found(what: str) -> None:
    calls = Calls()
    calls.remember(*FOUND[0], **FOUND[1])
    positional, named = LIKE[what]
    assert calls.again(*positional, **named) is None and not calls.given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("busy", True), ("busy", []), ("busy", 1), ("alike", False), ("grad", True),
        ("_current_level", 0),
    ],
)  # fmt: skip
def test_calls_that_somebody_has_to_see_are_not_found(name: str, value: Any) -> None:
    calls = Calls()
    calls.remember(X)
    before = getattr(calls.now, name)
    setattr(calls.now, name, value)
    assert calls.again(X) is None
    setattr(calls.now, name, before)
    assert calls.again(X) == "done"


def test_a_variable_of_the_context_keeps_calls_from_being_found() -> None:
    calls = Calls()
    calls.remember(X)
    token = WATCHED.set([])
    assert calls.again(X) is None
    WATCHED.reset(token)
    assert calls.again(X) == "done"


def test_only_errors_of_launches_pass() -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("it fails")

    calls = Calls()
    calls.made.remember((X,), {}, fails, fails)
    assert calls.again(X) is None
    calls.made.remember((Y, 1), {}, lambda *_: True, fails)
    with pytest.raises(RuntimeError, match="it fails"):
        calls.again(Y, 1)
    calls.remember(X, [1])
    assert len(calls.made) == 2 and calls.made.again([X], {}) is None


def test_calls_do_not_fill_the_memory() -> None:
    calls = Calls()
    for i in range(4097):
        calls.remember(X, i)
    assert len(calls.made) == 1 and calls.again(X, 4096) == "done"
