"""Tensor maps for emulated bulk copies.

A GPU's tensor map is 128 bytes that cuTensorMapEncodeTiled writes and that are not documented; this
packs 128 bytes of the emulator's own (csrc/emulator/sm90/tensor_map.h) from the same arguments, and
refuses what that function refuses.
"""

import struct
from collections.abc import Sequence

TENSOR_MAP_BYTES = 128
MAX_RANK = 5
MAX_BOX = 256
SWIZZLES = (0, 32, 64, 128)
_MAGIC = b"FEMUMAP1"
_LAYOUT = struct.Struct("<8sQ4Q5I5H3B47x")


def pack_tensor_map(
    address: int,
    element_bytes: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    swizzle: int = 0,
) -> bytes:
    """The tensor map of `dims` elements at `address`, innermost dimension first.

    `strides` are bytes from one index to the next, of every dimension but the first; `box` is what
    one copy moves, in elements; `swizzle` permutes the 16-byte pieces of rows of so many bytes in
    shared memory (0: not). Elements outside the tensor read as zero and are not written.
    ValueError where cuTensorMapEncodeTiled would refuse.
    """
    rank = len(dims)

    def check(allowed: bool, what: str) -> None:
        if not allowed:
            raise ValueError(f"tensor map: {what}")

    check(1 <= rank <= MAX_RANK, f"{rank} dimensions; 1 to {MAX_RANK} are allowed")
    check(len(strides) == rank - 1, f"{len(strides)} strides for {rank} dimensions: one fewer")
    check(len(box) == rank, f"a box of {len(box)} dimensions for a tensor of {rank}")
    check(element_bytes in (1, 2, 4, 8), f"elements of {element_bytes} bytes; 1, 2, 4 or 8")
    check(address % 16 == 0, f"address 0x{address:x} is not a multiple of 16")
    for i, size in enumerate(dims):
        check(1 <= size < 1 << 32, f"dimension {i} has {size} elements; 1 to 2^32 - 1 are allowed")
    for i, stride in enumerate(strides, 1):
        good = stride % 16 == 0 and 0 <= stride < 1 << 40
        check(good, f"stride {stride} of dimension {i}: multiples of 16 below 2^40 are allowed")
    for i, size in enumerate(box):
        check(1 <= size <= MAX_BOX, f"box of {size} in dimension {i}; 1 to {MAX_BOX} are allowed")
    check(swizzle in SWIZZLES, f"swizzle of {swizzle} bytes; allowed are 0, 32, 64 and 128")
    row = box[0] * element_bytes
    check(row % 16 == 0, f"a box row of {row} bytes is not a multiple of 16")
    check(
        not swizzle or row <= swizzle, f"a box row of {row} bytes exceeds the swizzle's {swizzle}"
    )
    return _LAYOUT.pack(
        *(_MAGIC, address),
        *(*strides, *[0] * (MAX_RANK - rank)),
        *(*dims, *[1] * (MAX_RANK - rank)),
        *(*box, *[1] * (MAX_RANK - rank)),
        *(rank, element_bytes, swizzle),
    )
