"""Micro-kernels of bulk copies: what lands where in shared memory, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass

from ...conformance.micro_kernel import Case
from ...conformance.values import random_bits
from .hopper_kernel import HopperKernels, MapSpec, hopper_entry

THREADS = 128
TILE_BYTES = 32768
INPUT_BYTES = 1 << 16

# The tile starts as 0xEE bytes; barriers count to one arrival.
PREAMBLE = f"""
.shared .align 1024 .b8 tile[{TILE_BYTES}];
.shared .align 8 .b8 barrier[8];
.reg .b32 %base, %word, %at32, %barrier, %parity; .reg .pred %more, %first; .reg .b64 %maps;
mov.u32 %base, tile; mov.u32 %barrier, barrier; mov.u32 %parity, 0;
setp.eq.u32 %first, %tid32, 0;
mad.lo.u32 %at32, %tid32, 4, %base; add.u32 %word, %base, {TILE_BYTES};
CLEAR:
st.shared.b32 [%at32], 0xEEEEEEEE;
add.u32 %at32, %at32, {4 * THREADS}; setp.lt.u32 %more, %at32, %word; @%more bra CLEAR;
@%first mbarrier.init.shared::cta.b64 [%barrier], 1;
@%first fence.mbarrier_init.release.cluster;
fence.proxy.async.shared::cta;
bar.sync 0;
"""
_WAIT = """
WAIT_$: mbarrier.try_wait.parity.shared::cta.b64 %more, [%barrier], %parity;
@!%more bra WAIT_$;
xor.b32 %parity, %parity, 1;
"""


def _dump(n_bytes: int, place: int) -> str:
    """The tile's first bytes to the output."""
    return "\n".join(
        "{ .reg .b32 w, a; .reg .b64 o; "
        f"mad.lo.u32 a, %tid32, 4, %base; mad.wide.u32 o, %tid32, 4, %out; .reg .pred q; "
        f"setp.lt.u32 q, %tid32, {min(THREADS, (n_bytes - start) // 4)}; "
        f"@q ld.shared.b32 w, [a+{start}]; @q st.global.b32 [o+{place + start}], w; }}"
        for start in range(0, n_bytes, 4 * THREADS)
    )


@dataclass(frozen=True)
class TensorCopy:
    key: str
    map: MapSpec
    place: tuple[int, ...]
    hint: bool = False

    @property
    def rank(self) -> int:
        return len(self.map.dims)

    @property
    def coordinates(self) -> str:
        return ", ".join(map(str, self.place))


def _load_form(copy: TensorCopy) -> str:
    hint = ".L2::cache_hint" if copy.hint else ""
    return (
        f"cp.async.bulk.tensor.{copy.rank}d.shared::cluster.global.tile"
        f".mbarrier::complete_tx::bytes{hint}"
    )


def _store_form(copy: TensorCopy) -> str:
    return f"cp.async.bulk.tensor.{copy.rank}d.global.shared::cta.tile.bulk_group"


def _spec(dims: tuple[int, ...], box: tuple[int, ...], swizzle: int = 0, size: int = 2) -> MapSpec:
    """A tensor in the inputs whose rows have padding; the strides of more dimensions follow."""
    strides, stride = [], -(-dims[0] * size // 16) * 16 + 16
    for extent in dims[1:]:
        strides.append(stride)
        stride *= extent
    return MapSpec(False, 64, size, dims, tuple(strides), box, swizzle)


def loads() -> list[TensorCopy]:
    copies = [
        TensorCopy("1d", _spec((200,), (64,)), (40,)),
        TensorCopy("1d over both ends", _spec((48,), (64,)), (-8,)),
        TensorCopy("bytes", _spec((100, 9), (32, 5), 32, size=1), (16, 6)),
        TensorCopy("words", _spec((40, 9), (32, 8), 128, size=4), (12, -2)),
        TensorCopy("double words", _spec((20, 9), (8, 8), 64, size=8), (-4, 3)),
        TensorCopy("3d", _spec((70, 12, 5), (32, 8, 2), 64), (48, 7, 4)),
        TensorCopy("4d", _spec((64, 9, 3, 2), (64, 4, 2, 1), 128), (0, 7, -1, 1), hint=True),
        TensorCopy("5d", _spec((64, 30, 2, 3, 2), (64, 16, 2, 1, 1), 128), (0, 20, 0, 2, 1), True),
        TensorCopy("5d outside", _spec((64, 30, 2, 3, 2), (64, 16, 2, 1, 1), 128), (0, 4, 0, 3, 1)),
    ]
    for swizzle, columns in ((0, 64), (32, 16), (64, 32), (128, 64)):
        map_ = _spec((80, 40), (columns, 24), swizzle)
        copies += [
            TensorCopy(f"swizzle {swizzle}", map_, (8, 5)),
            TensorCopy(f"swizzle {swizzle} before the start", map_, (-8, -7)),
            TensorCopy(f"swizzle {swizzle} behind the end", map_, (64, 30)),
            TensorCopy(f"swizzle {swizzle}, all rows before the start", map_, (8, -24)),
            TensorCopy(f"swizzle {swizzle} all outside", map_, (80, 0)),
        ]
    # Rows shorter than what is swizzled.
    copies.append(TensorCopy("short rows", _spec((80, 40), (32, 16), 128), (8, 5)))
    copies.append(TensorCopy("very short rows", _spec((80, 40), (8, 16), 64), (8, 5)))
    return copies


def load_kernels() -> list[HopperKernels]:
    """An entry for every load: one that a GPU refuses takes no other with it."""
    return [_load_kernel(f"tensor_load_{i}", copy) for i, copy in enumerate(loads())]


def _load_kernel(entry: str, copy: TensorCopy) -> HopperKernels:
    form = _load_form(copy)
    case = Case(f"load {copy.key}", form, f"{form} {copy}", "u4", copy.map.shared_bytes // 4)
    kernels = HopperKernels(
        entry, "", random_bits(80, INPUT_BYTES // 8), [case], 1, THREADS,
        preamble=PREAMBLE, maps=[copy.map],
    )  # fmt: skip
    body = f"""
mov.b64 %maps, {entry}_maps; cvta.param.u64 %maps, %maps;
.reg .b64 %policy; mov.b64 %policy, 0x14F0000000000000;
@!%first bra ISSUED; prefetch.tensormap [%maps];
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], {copy.map.box_bytes};
{form} [%base], [%maps, {{{copy.coordinates}}}], [%barrier]{", %policy" if copy.hint else ""};
ISSUED: {_WAIT.replace("$", "0")}
{_dump(copy.map.shared_bytes, kernels.offsets[case.key])}
"""
    kernels.ptx = hopper_entry(entry, PREAMBLE + body, 1)
    return kernels


def store_kernels() -> list[HopperKernels]:
    """An entry for every store; the tensor is 0xEE where nothing is stored."""
    plans = [
        ("swizzle 0", (80, 20), (64, 16), 0, (0, 2), 2),
        ("swizzle 32", (80, 20), (16, 16), 32, (24, 2), 2),
        ("swizzle 64", (80, 20), (32, 16), 64, (8, 2), 2),
        ("swizzle 128", (80, 20), (64, 16), 128, (8, 2), 2),
        ("clipped at the end", (80, 20), (64, 16), 128, (32, 9), 2),
        ("outside", (80, 20), (64, 16), 128, (0, 20), 2),
        ("words", (24, 9), (8, 4), 32, (4, 3), 4),
        ("5d", (64, 20, 2, 2, 2), (64, 16, 2, 1, 1), 128, (0, 7, 0, 1, 1), 2),
        ("short rows", (80, 20), (32, 16), 128, (8, 2), 2),
    ]
    found = []
    for i, (key, dims, box, swizzle, place, size) in enumerate(plans):
        strides = _spec(dims, box, swizzle, size).strides
        copy = TensorCopy(key, MapSpec(True, 0, size, dims, strides, box, swizzle), place)
        found.append(_store_kernel(f"tensor_store_{i}", copy))
    return found


def _store_kernel(entry: str, copy: TensorCopy) -> HopperKernels:
    form = _store_form(copy)
    n_bytes = (copy.map.strides[-1] * copy.map.dims[-1] + 15) // 16 * 16
    case = Case(f"store {copy.key}", form, f"{form} {copy}", "u4", n_bytes // 4)
    kernels = HopperKernels(
        entry, "", random_bits(81, TILE_BYTES // 8), [case], 1, THREADS,
        preamble=PREAMBLE, maps=[copy.map],
    )  # fmt: skip
    body = f"""{_FILL}
mov.b64 %maps, {entry}_maps; cvta.param.u64 %maps, %maps;
@!%first bra DONE;
{form} [%maps, {{{copy.coordinates}}}], [%base];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:
"""
    kernels.ptx = hopper_entry(entry, PREAMBLE + body, 1)
    return kernels


# The tile from the inputs, ready for asynchronous units.
_FILL = f"""
mov.u32 %at32, %tid32;
FILL:
{{ .reg .b32 to; mad.wide.u32 %at0, %at32, 4, %in; ld.global.b32 %word, [%at0];
mad.lo.u32 to, %at32, 4, %base; st.shared.b32 [to], %word; }}
add.u32 %at32, %at32, {THREADS}; setp.lt.u32 %more, %at32, {TILE_BYTES // 4}; @%more bra FILL;
fence.proxy.async.shared::cta; bar.sync 0;
"""


def plain_kernels() -> HopperKernels:
    """Bytes in, and out again from elsewhere in the tile."""
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    cases = [
        Case("plain load", load, "256 bytes from 48", "u4", 64),
        Case("plain store", store, "64 bytes from 112", "u4", 32),
    ]
    kernels = HopperKernels(
        "bulk_copy", "", random_bits(82, 256), cases, 1, THREADS, preamble=PREAMBLE
    )
    body = f"""@!%first bra ISSUED; {{ .reg .b64 at;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 256; add.u64 at, %in, 48;
{load} [%base], [at], 256, [%barrier]; }}
ISSUED: {_WAIT.replace("$", "0")}
{_dump(256, kernels.offsets["plain load"])}
@!%first bra STORED; {{ .reg .b64 at; .reg .b32 from;
add.u64 at, %out, {kernels.offsets["plain store"] + 32}; add.u32 from, %base, 112;
{store} [at], [from], 64; cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; }}
STORED: bar.sync 0;
"""
    kernels.ptx = hopper_entry("bulk_copy", PREAMBLE + body)
    return kernels
