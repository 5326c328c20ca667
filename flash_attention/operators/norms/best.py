"""Which configuration of which kernel is fastest for a norm's rows."""

from __future__ import annotations

from ..rows.alone_op import AloneConfig
from ..rows.cluster_op import SEVERAL_ROWS, ClusterConfig
from ..rows.op import RowCall, item_of

_WEIGHT, _BIAS = 2, 3  # their positions among the tensors


def alone(call: RowCall) -> AloneConfig | None:
    """Rows that nearly fill the registers."""
    least = 15360 if item_of(call) == 2 else 12288
    return AloneConfig() if least < call.columns <= 16384 else None


def alone_rms(call: RowCall) -> AloneConfig | None:
    """Rows of four steps, since so many loads are under way at a time; of fp32 two."""
    columns, half = call.columns, item_of(call) == 2
    if half and 12288 < columns <= 16384:
        return AloneConfig(4096, 16, 3)
    large = 28672 <= columns <= 32768 if half else 12288 <= columns <= 16384
    return AloneConfig(8192, 32, 2) if large else None


def _of_fp32_vectors(call: RowCall) -> bool:
    """Beside rows of 16 bits: they take twice the registers."""
    given = dict(call.switches)
    types = [
        call.layouts[at][1] for at, name in ((_WEIGHT, "WEIGHT"), (_BIAS, "BIAS")) if given[name]
    ]
    return item_of(call) == 2 and "float32" in types


def cluster_rms(call: RowCall) -> ClusterConfig | None:
    """Pairs of rows, as a part of the weight then serves two; few rows one by one."""
    columns, several = call.columns, call.rows >= SEVERAL_ROWS
    if columns > 131072:
        return _longest_rms(call)
    if columns <= 8192:
        return None
    if item_of(call) == 4:
        long = ClusterConfig(8192, 8, 80, TOGETHER=True)
        return ClusterConfig(4096, 4, 80) if columns <= 65536 else long
    if _of_fp32_vectors(call):
        return ClusterConfig(4096, 4, 80) if columns <= 32768 else None
    if columns <= 65536:
        return ClusterConfig(4096, 4, 96, ROWS=2) if several else ClusterConfig(4096, 4, 56)
    pairs = ClusterConfig(8192, 8, 80, ROWS=2, TOGETHER=True)
    return pairs if several else ClusterConfig(8192, 4, 104)


def _longest_rms(call: RowCall) -> ClusterConfig | None:
    """Of more than 131,072 columns."""
    columns = call.columns
    if not _is_long(call) or _of_fp32_vectors(call):
        return None
    if item_of(call) == 4:
        long = ClusterConfig(16384, 16, 64, PIECES=4, TOGETHER=True, AHEAD=True)
        return long if columns % 16384 == 0 else None
    warps, registers = 8, 80
    if columns % 16384 == 0:
        warps, registers = (4, 120) if columns <= 15 * 16384 else (8, 72)
    return ClusterConfig(16384, warps, registers, PIECES=8, TOGETHER=True, SHARED=True)


def _is_long(call: RowCall) -> bool:
    """Rows that need clusters of parts of 16,384, and enough of them to be worth it."""
    return 8 * 16384 < call.columns <= 16 * 16384 and 2 * call.rows >= SEVERAL_ROWS


def cluster(call: RowCall) -> ClusterConfig | None:
    """The same for LayerNorm. Pieces that are not whole need more registers than there are."""
    if call.columns <= 8192 or _of_fp32_vectors(call):
        return None
    return _cluster_half(call) if item_of(call) == 2 else _cluster_single(call)


def _cluster_half(call: RowCall) -> ClusterConfig | None:
    """Four rows, whose weight and bias are in shared memory, where there are many."""
    columns, several = call.columns, call.rows >= SEVERAL_ROWS
    if columns > 65536:
        return None
    if not several:
        return ClusterConfig(4096, 4, 72)
    if columns <= 16384:
        return ClusterConfig(2048, 4, 64, ROWS=2)
    if columns % 4096:
        return None
    if call.rows < 4 * SEVERAL_ROWS:
        return ClusterConfig(4096, 4, 96, ROWS=2, PIECES=4)
    return ClusterConfig(4096, 4, 128, ROWS=4, PIECES=4, TOGETHER=True, SHARED=True)


def _cluster_single(call: RowCall) -> ClusterConfig | None:
    columns, several = call.columns, call.rows >= SEVERAL_ROWS
    if columns <= 32768:
        return ClusterConfig(2048, 4, 80, ROWS=2) if several else ClusterConfig(2048, 4, 64)
    if columns <= 131072 and columns % 8192 == 0:
        whole = ClusterConfig(8192, 8, 64, PIECES=4, TOGETHER=True, AHEAD=True)
        return whole if several else None
    if columns <= 65536:
        pairs = ClusterConfig(4096, 8, 80, ROWS=2, PIECES=4, TOGETHER=True)
        return pairs if several else None
    if _is_long(call) and columns > 15 * 16384 and columns % 16384 == 0:
        return ClusterConfig(16384, 8, 112, PIECES=8, TOGETHER=True, AHEAD=True)
    return None
