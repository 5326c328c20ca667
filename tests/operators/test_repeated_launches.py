"""Repeated calls that go from C++ to the driver, which here notes what it gets."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from triton.backends.nvidia import driver as nvidia

from flash_attention.library import load_library
from flash_attention.triton_kit.again import MOST_KEPT, Again, Memory, Step, again
from flash_attention.triton_kit.launched import Launched
from flash_attention.triton_kit.launchers import Packed, packed
from flash_attention.triton_kit.machine import ready
from tests.operators.stand_in_driver import STREAMS, Driver
from tests.operators.stand_in_machine import EXCHANGE_API, StandInMachine

SIGNATURE = {"x": "*fp16", "out": "*fp16", "n": "i32", "BLOCK": "constexpr", "eps": "fp32"}
OF_HALF = struct.unpack("<I", struct.pack("<f", 0.5))[0]


class Machine(StandInMachine):
    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    @property
    def repeated(self) -> Callable[..., Any]:
        made = load_library().RepeatedLaunches
        return partial(made, self._driver.functions, EXCHANGE_API)


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
    {"global_scratch_size": 8}, {"profile_scratch_size": 8},
    {"launch_pdl": True}, {"gsan_enabled": True},
    {"num_ctas": 2, "launch_cooperative_grid": True},
    {"signature": {**SIGNATURE, "eps": "another type"}},
    {"signature": {"x": "*fp16"}},
], ids=str)  # fmt: skip
def test_other_kernels_go_to_triton(other: dict[str, Any]) -> None:
    assert packed(launched(X, X, 5, 64, 0.5, **other)) is None


def repeated(
    machine: Machine, memory: Memory, result: tuple[int, ...], *at: int, step: Packed = PACKED
) -> Again:
    def start(*_: Any) -> None:
        pytest.fail("it went to Triton")

    steps = [Step(start, at[i : i + 2], (), packed=step) for i in range(0, len(at), 2)]
    return again(machine, 0, steps, memory, result, single=len(result) == 1)


def test_a_cooperative_launch() -> None:
    found = packed(launched(X, X, 5, 64, 0.5, launch_cooperative_grid=True))
    assert found == replace(PACKED, cooperative=True)
    driver = Driver()
    go = repeated(Machine(driver), MEMORY, (0,), 0, 0, step=replace(PACKED, cooperative=True))
    call(go, torch.zeros(64).half())
    assert driver.cooperative == len(driver.launched) == 1


def test_a_launch_of_clusters() -> None:
    """Triton's grid counts clusters, the driver's blocks."""
    found = packed(launched(X, X, 5, 64, 0.5, num_ctas=4))
    of_clusters = replace(PACKED, grid=(8, 3, 1), cluster=4)
    assert found == of_clusters
    driver, x = Driver(), torch.zeros(64).half()
    call(repeated(Machine(driver), MEMORY, (0,), 0, 0, step=of_clusters), x)
    call(repeated(Machine(driver), MEMORY, (0,), 0, 0, step=replace(PACKED, grid=(8, 3, 1))), x)
    assert driver.clusters == [(4, 1, 1)]
    assert driver.launched[0] == driver.launched[1]
    for wrong in (replace(of_clusters, cluster=3), replace(of_clusters, cooperative=True)):
        with pytest.raises(pytest.fail.Exception, match="it went to Triton"):
            call(repeated(Machine(driver), MEMORY, (0,), 0, 0, step=wrong), x)


def test_what_stays_zero_is_kept_for_each_stream() -> None:
    driver, x = Driver(), torch.zeros(64).half()
    memory = Memory(((64, 2),), (), MADE, scratch=(0, 512), scratch_bytes=1024, zero_bytes=96)
    go = repeated(Machine(driver), memory, (1,), 0, 4, 3, 2)
    call(go, x), call(go, x)
    at = [first[1] for *_, first in driver.launched[::2]]
    assert at[0] == at[1] and bytes((ctypes.c_char * 96).from_address(at[0])) == bytes(96)
    assert driver.launched[1][-1] == driver.launched[3][-1]  # of its scratch memory, kept too
    assert driver.launched[1][-1][0] == driver.launched[1][-1][1] + 512
    much = replace(memory, scratch_bytes=MOST_KEPT + 1)
    call(repeated(Machine(driver), much, (1,), 0, 4, 3, 2), x)
    assert driver.launched[-2][-1][1] == at[0]
    assert driver.launched[-1][-1][1] != driver.launched[1][-1][1]  # made for the call
    assert driver.launched[-1][-1][0] == driver.launched[-1][-1][1] + 512
    driver.stream = next(STREAMS)
    call(go, x)
    assert driver.launched[-2][-1][1] != at[0]
    larger = repeated(Machine(driver), replace(memory, zero_bytes=4096), (1,), 0, 4)
    call(larger, x), call(go, x)
    assert driver.launched[-2][-1][1] == driver.launched[-3][-1][1]
    count = len(driver.launched)
    driver.captured = True  # the graph could run beside later launches
    assert call(go, x) is None and len(driver.launched) == count


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
        step: Any = (1, (1, 1, 1), 32, 0, False, 1, (0,), [(0, 1)], [])
        make([], *[None] * 4, 0, [(64, 2)], [], [], [], (0, 0), [step], [0], True)
