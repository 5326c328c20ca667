"""What goes straight to Triton's launcher in C is what Triton's own Python gives it."""

from __future__ import annotations

import gc
import struct
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver

from flash_attention.triton_kit import again as repeated
from flash_attention.triton_kit.again import Memory, Step, again
from flash_attention.triton_kit.launched import Launched
from flash_attention.triton_kit.launchers import Direct, checked_start, direct, packed
from tests.operators.stand_in_machine import StandInMachine

GRID, STREAM = (2, 3, 1), 11
META = [{"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [64, 64], "fp4_padded": False}]


class InC:
    """In place of a function in C."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> None:
        self.calls.append(args)


def launcher(in_c: InC, signature: dict[str, str], **other: Any) -> Any:
    """Triton's own of a kernel that was not compiled."""
    made: Any = object.__new__(nvidia.CudaLauncher)
    meta = META if any(word.startswith("tensordesc") for word in signature.values()) else None
    made.__dict__ = {
        "num_ctas": 1, "launch": nvidia.wrap_handle_tensordesc(in_c, signature, meta),
        "global_scratch_size": 0, "global_scratch_align": 1, "profile_scratch_size": 0,
        "profile_scratch_align": 1, "launch_cooperative_grid": False, "launch_pdl": True,
        "arg_annotations": ["annotations"], "kernel_signature": b"signature",
        "gsan_enabled": False, **other,
    }  # fmt: skip
    return made


def launched(in_c: InC, signature: dict[str, str], *arguments: Any, **other: Any) -> Launched:
    kernel = SimpleNamespace(
        run=launcher(in_c, signature, **other), function=22, packed_metadata=(4, 1, 1024),
        src=SimpleNamespace(signature=signature), metadata=SimpleNamespace(tensordesc_meta=META),
    )  # fmt: skip
    return Launched(kernel, GRID, arguments, (0,))


def described(address: int) -> Any:
    return SimpleNamespace(
        base=SimpleNamespace(data_ptr=lambda: address), shape=[128, 64], strides=[64, 1],
        padding="zero", round_f32_to_tf32=False,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def utilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Triton's driver that make descriptors: by the names of every release."""
    fill = {
        name: lambda *of: ("map", *map(str, of))
        for name in ("fill_tma_descriptor", "fill_tma_descriptor_tiled")
    }
    monkeypatch.setattr(driver, "_active", SimpleNamespace(utils=SimpleNamespace(**fill)))


PLAIN = {"x": "*fp16", "n": "i32", "eps": "fp32", "BLOCK": "constexpr"}
TMA = {"x": "tensordesc<fp16[64, 64]>", "n": "i32", "BLOCK": "constexpr"}
CALLS: dict[str, tuple[dict[str, str], tuple[Any, ...]]] = {
    "addresses": (PLAIN, (4096, 5, 0.5, 64)),
    "descriptors": (TMA, (described(4096), 5, 64)),
}


@pytest.mark.parametrize("what", CALLS)
def test_the_launcher_in_c_gets_what_triton_gives_it(what: str) -> None:
    """In both of the ways to start it."""
    signature, arguments = CALLS[what]
    in_c = InC()
    launch = launched(in_c, signature, *arguments)
    checked_start(launch)(STREAM, arguments)
    straight = direct(launch)
    assert straight is not None
    straight.start(STREAM, arguments)
    straight.in_c(*straight.prepare(STREAM, arguments))
    wanted, started, prepared = map(listed, in_c.calls)
    assert wanted == started == prepared and 22 in wanted and STREAM in wanted


def listed(value: Any) -> Any:
    """Triton makes lists of some arguments, of which its launcher takes tuples, too."""
    return [listed(one) for one in value] if isinstance(value, (tuple, list)) else value


_SLOTS = 30


class Map:
    """As large as Triton's object of a map. Here it ends with addresses of other objects."""

    __slots__ = tuple(
        f"slot_{i:02}" for i in range(_SLOTS)
    )  # of eight bytes, behind a header of 16

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, object())

    @property
    def last_bytes(self) -> bytes:
        slots = [getattr(self, name) for name in self.__slots__[-16:]]
        return struct.pack("<16Q", *map(id, slots))


def test_a_descriptor_as_the_driver_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map, its tensor's sizes and strides, and what else the kernel gets."""
    made = Map()
    for name in ("fill_tma_descriptor", "fill_tma_descriptor_tiled"):
        monkeypatch.setattr(driver.active.utils, name, lambda *_: made)
    signature = {"x": "tensordesc<fp16[64, 64]>", "n": "i32", "BLOCK": "constexpr", "y": "*fp16"}
    launch = launched(InC(), signature, described(4096), 5, 64, 8192, launch_pdl=False)
    found = packed(launch)
    assert found is not None
    assert found.parameters == (0, 128, 64, 64, 1, 5, 0, 0, 0)
    assert found.pointers == (0, 6) and found.maps == {0: (made.last_bytes, 4096)}


def test_an_object_of_another_size_goes_to_triton() -> None:
    launch = launched(InC(), TMA, described(4096), 5, 64, launch_pdl=False)
    assert packed(launch) is None  # a tuple, here


@pytest.mark.parametrize("other", ["global_scratch_size", "profile_scratch_size", "gsan_enabled"])
def test_a_kernel_that_gets_more_goes_triton_s_way(other: str) -> None:
    assert direct(launched(InC(), PLAIN, 4096, 5, 0.5, 64, **{other: 8})) is None


def test_a_release_that_was_not_tested_goes_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton

    monkeypatch.setattr(triton, "__version__", "3.10.0")
    assert direct(launched(InC(), PLAIN, 4096, 5, 0.5, 64)) is None


class Descriptor:
    """Of one tensor, as Triton's is."""

    def __init__(self, base: torch.Tensor) -> None:
        self.base = base


def described_call(prepared: list[int], in_c: InC) -> repeated.Again:
    def prepare(stream: int, arguments: Any) -> tuple[Any, ...]:
        prepared.append(stream)
        return (stream, arguments[0].base.data_ptr(), *arguments[1:])

    step = Step(
        lambda *_: pytest.fail("not straight"), (0,), (5,), (Descriptor,),
        Direct(lambda *_: None, prepare, in_c),
    )  # fmt: skip
    memory = Memory(needed=((64, 4),), apart=(), made=())
    return again(StandInMachine(), 0, [step], memory, (0,), single=True)


def test_a_descriptor_is_made_once_for_an_address() -> None:
    prepared: list[int] = []
    in_c = InC()
    call = described_call(prepared, in_c)
    x, y = torch.zeros(2, 16)
    for tensor in (x, y, x, x, y):
        assert call([tensor], [tensor.data_ptr()]) is tensor
    assert len(prepared) == 2
    assert [at for _, at, _ in in_c.calls] == [t.data_ptr() for t in (x, y, x, x, y)]


def test_no_tensor_is_kept_with_its_descriptor() -> None:
    call = described_call([], InC())
    x = torch.zeros(16)
    gone = weakref.ref(x)
    call([x], [x.data_ptr()])
    del x
    gc.collect()
    assert gone() is None


def test_descriptors_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MOST_PREPARED", 2)
    prepared: list[int] = []
    call = described_call(prepared, InC())
    for tensor in (rows := torch.zeros(3, 16)):
        call([tensor], [tensor.data_ptr()])
    call([rows[0]], [rows[0].data_ptr()])
    assert len(prepared) == 4
    call([rows[0]], [rows[0].data_ptr()])
    assert len(prepared) == 4
