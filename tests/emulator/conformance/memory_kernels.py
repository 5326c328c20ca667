"""Micro-kernels of loads, stores, asynchronous copies, barriers, parameters and branches.

Two warps; results are moved bits, so every answer must be equal to the last one.
"""

from __future__ import annotations

import re
import struct

from .micro_kernel import Case, MicroKernels, entry_text, words
from .values import random_bits

THREADS = 64
_PLACE = re.compile(r"\+\$(?:\+(\d+))?")
_COUNTS = {"": 1, "v2": 2, "v4": 4}
LOADS = [
    *words("ld.global.b32 ld.global.v2.b32 ld.global.v4.b32 ld.global.f32 ld.global.u32"),
    *words("ld.global.v2.b64 ld.global.b64 ld.global.v4.f32 ld.global.nc.v4.b32 ld.global.u8"),
    *words("ld.global.s8 ld.global.u16 ld.global.s16 ld.global.b16"),
    *words("ld.shared.b32 ld.shared.v2.b32 ld.shared.v4.b32 ld.shared.f32 ld.shared.b64"),
    *words("ld.shared.v2.b64 ld.shared.u8 ld.shared.s16 ld.shared.b16"),
]
STORES = [
    *words("st.global.b32 st.global.v2.b32 st.global.v4.b32 st.global.f32 st.global.v4.f32"),
    *words("st.global.b16 st.global.b64 st.global.u8 st.global.v2.b64"),
    *words("st.shared.b32 st.shared.v2.b32 st.shared.v4.b32 st.shared.f32 st.shared.b16"),
    *words("st.shared.b64 st.shared.u8 st.shared.v2.b64"),
]
# (form, bytes, source bytes or "" for all)
COPIES = [
    ("cp.async.cg.shared.global.L2::128B", 16, ""),
    ("cp.async.cg.shared.global", 16, ""),
    *[("cp.async.cg.shared.global", 16, str(size)) for size in (0, 4, 9, 16)],
    ("cp.async.ca.shared.global", 4, ""),
    ("cp.async.ca.shared.global", 8, "3"),
    ("cp.async.ca.shared.global.L2::128B", 16, ""),
]
PARAMETERS = struct.pack("<IfQiHHq", 0xDEADBEEF, -1.5, 0x0123456789ABCDEF, -7, 40000, 9, -3)


def _width(form: str) -> tuple[int, int, str]:
    """Elements, bytes of each, and the .reg type that holds one."""
    parts = form.split(".")
    count = next((_COUNTS[part] for part in parts if part in ("v2", "v4")), 1)
    n_bytes = int(parts[-1][1:]) // 8
    return count, n_bytes, parts[-1] if parts[-1][0] == "f" else f"b{max(16, 8 * n_bytes)}"


def _vector(count: int) -> str:
    return "e0" if count == 1 else "{" + ", ".join(f"e{i}" for i in range(count)) + "}"


def _load(form: str) -> str:
    """Thread t reads the elements of thread 7 t + 3 and stores them one by one."""
    count, n_bytes, register = _width(form)
    if form.split(".")[-1] in ("u8", "s8", "s16"):
        register = "b32"  # shows the extension
    size = 4 if register == "b32" else 2 if register == "b16" else n_bytes
    base = "%in" if "global" in form else "%shared64"
    address = "%at0" if "global" in form else "u"
    lines = [
        f".reg .{register} e<4>; .reg .b32 u; mad.lo.u32 u, %tid32, 7, 3; and.b32 u, u, 63;",
        f"mad.wide.u32 %at0, u, {count * n_bytes}, {base}; cvt.u32.u64 u, %at0;",
        f"{form} {_vector(count)}, [{address}];",
        f"mad.wide.u32 %at1, %tid32, {count * size}, %out;",
    ]
    store = "b" + str(8 * size)
    lines += [f"st.global.{store} [%at1+$+{i * size}], e{i};" for i in range(count)]
    return " ".join(lines)


def _store(form: str) -> str:
    """Thread t writes its elements at the place of thread 5 t + 1, through shared memory or not."""
    count, n_bytes, register = _width(form)
    total = count * n_bytes
    shared = "shared" in form
    base, address = ("%shared64", "u") if shared else ("%out", "%at1+$")
    lines = [
        f".reg .{register} e<4>; .reg .b32 u; mad.lo.u32 u, %tid32, 5, 1; and.b32 u, u, 63;",
        f"mad.wide.u32 %at0, %tid32, {total}, %in; mad.wide.u32 %at1, u, {total}, {base};",
        "cvt.u32.u64 u, %at1; bar.sync 0;",
        *(f"ld.global.{'u8' if n_bytes == 1 else f'b{8 * n_bytes}'} e{i}, [%at0+{i * n_bytes}];"
          for i in range(count)),
        f"{form} [{address}], {_vector(count)};",
    ]  # fmt: skip
    if shared:
        lines.append("bar.sync 0;" + _read_back(total))
    return " ".join(lines)


def _read_back(n_bytes: int) -> str:
    """Copies n_bytes of shared memory a thread to the output, 1 or 4 at a time."""
    step, kind, register = (4, "b32", "w") if n_bytes % 4 == 0 else (1, "u8", "h")
    return (
        f"{{ .reg .b32 p, w; .reg .b16 h; mad.lo.u32 p, %tid32, {n_bytes}, %shared; "
        f"mad.wide.u32 %at2, %tid32, {n_bytes}, %out; "
        + " ".join(
            f"ld.shared.{kind} {register}, [p+{i}]; st.global.{kind} [%at2+$+{i}], {register};"
            for i in range(0, n_bytes, step)
        )
        + " }"
    )


def _copy(form: str, n_bytes: int, source_bytes: str) -> str:
    """Two groups in flight, the first waited for alone; zeros where the source is short."""
    size = f", {source_bytes}" if source_bytes else ""
    return (
        ".reg .b32 u; bar.sync 0; "
        f"mad.lo.u32 u, %tid32, {n_bytes}, %shared; mad.wide.u32 %at0, %tid32, {n_bytes}, %in; "
        f"{form} [u], [%at0], {n_bytes}{size}; cp.async.commit_group; "
        f"{form} [u+2048], [%at0], {n_bytes}; cp.async.commit_group; "
        "cp.async.wait_group 1; bar.sync 0; " + _read_back(n_bytes) + " cp.async.wait_all;"
    )


# Through memory to a lane of the same warp, and of the other warp; loops that lanes leave one by
# one; addresses; parameters by name and through an address.
_OTHERS: list[tuple[str, str, str]] = [
    ("bar.warp.sync", "bar.warp.sync",
     ".reg .b32 d, p; bar.sync 0; mad.lo.u32 p, %tid32, 4, %shared; ld.global.b32 d, [%at3]; "
     "st.shared.b32 [p], d; bar.warp.sync -1; xor.b32 p, p, 20; ld.shared.b32 d, [p];"),
    ("bar.sync", "bar.sync",
     ".reg .b32 d, p; bar.sync 0; mad.lo.u32 p, %tid32, 4, %shared; ld.global.b32 d, [%at3]; "
     "st.shared.b32 [p], d; bar.sync 0; mov.u32 p, 63; sub.u32 p, p, %tid32; "
     "mad.lo.u32 p, p, 4, %shared; ld.shared.b32 d, [p];"),
    ("bar.sync with a count", "bar.sync",
     ".reg .b32 d, p; bar.sync 0; mad.lo.u32 p, %tid32, 4, %shared; ld.global.b32 d, [%at3]; "
     "st.shared.b32 [p], d; bar.sync 1, 64; xor.b32 p, p, 128; ld.shared.b32 d, [p];"),
    ("bra", "bra",
     ".reg .b32 d, n; .reg .pred q; and.b32 n, %tid32, 11; mov.u32 d, 1; loop: "
     "mad.lo.u32 d, d, 3, n; setp.eq.u32 q, n, 0; @q bra done; sub.u32 n, n, 1; bra loop; done:"),
    ("bra.uni", "bra.uni",
     ".reg .b32 d, n; .reg .pred q; mov.u32 n, 5; mov.u32 d, %tid32; again: mad.lo.u32 d, d, 5, n; "
     "sub.u32 n, n, 1; setp.ne.u32 q, n, 0; @!q bra.uni out; bra.uni again; out:"),
    ("cvta.to.global.u64", "cvta.to.global.u64",
     ".reg .b32 d; .reg .b64 g; ld.param.u64 g, [memory_in]; cvta.to.global.u64 g, g; "
     "mad.wide.u32 g, %tid32, 4, g; ld.global.b32 d, [g+64];"),
    *((f"ld.param.{kind}", f"ld.param.{kind}",
       f".reg .{reg} d; ld.param.{kind} d, [memory_struct+{offset}];")
      for kind, reg, offset in (("u32", "b32", 0), ("f32", "f32", 4), ("u64", "b64", 8),
                                ("s32", "b32", 16), ("b32", "b32", 0), ("b64", "b64", 24),
                                ("s16", "b32", 20), ("u16", "b32", 22))),
    *((f"ld.param.{kind} by address", f"ld.param.{kind}",
       f".reg .{reg} d; .reg .b64 g; mov.b64 g, memory_struct; ld.param.{kind} d, [g+{offset}];")
      for kind, reg, offset in (("u32", "b32", 16), ("f32", "f32", 4), ("u64", "b64", 8))),
    *((f"ld.param.v2.u32 {place}", "ld.param.v2.u32",
       f".reg .b64 d, g; .reg .b32 u, v; mov.b64 g, memory_struct; "
       f"ld.param.v2.u32 {{u, v}}, {place}; mov.b64 d, {{v, u}};")
      for place in ("[memory_struct]", "[memory_struct+8]", "[g+24]")),
]  # fmt: skip


def _placed(text: str, start: int) -> str:
    """Turns +$ and +$+n into the case's place in the output."""
    return _PLACE.sub(lambda match: f"+{start + int(match[1] or 0)}", text)


def memory_kernels() -> MicroKernels:
    inputs = random_bits(60, 512)
    cases, bodies = [], []
    for form in LOADS:
        count, n_bytes, _ = _width(form)
        wide = 4 if form.split(".")[-1] in ("u8", "s8", "s16") else n_bytes
        cases.append(Case(form, form, _load(form), f"u{wide}", count * THREADS))
    for form in STORES:
        count, n_bytes, _ = _width(form)
        cases.append(Case(form, form, _store(form), f"u{n_bytes}", count * THREADS))
    for form, n_bytes, source in COPIES:
        key = f"{form} {n_bytes}{source and ' of ' + source}"
        cases.append(Case(key, form, _copy(form, n_bytes, source), "u4", n_bytes // 4 * THREADS))
    for key, form, text in _OTHERS:
        wide = 8 if ".b64 d" in text else 4
        text += f" st.global.b{8 * wide} [%o{wide}+$], d;"
        cases.append(Case(key, form, text, f"u{wide}", THREADS))
    # What these two do shows in every copy above; threads of the upper half leave at the end.
    for form in ("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"):
        cases.append(Case(form, form, _copy("cp.async.cg.shared.global", 16, ""), "u4",
                          4 * THREADS))  # fmt: skip
    cases.append(Case("ret", "ret", ".reg .pred q; setp.gt.u32 q, %tid32, 40; @q ret; "
                      "st.global.b32 [%o4+$], %tid32;", "u4", THREADS))  # fmt: skip
    kernel = MicroKernels(
        "memory", "", inputs, cases, 1, THREADS, arguments=[PARAMETERS], preamble=_PREAMBLE
    )
    for case in cases:
        bodies.append(f"{{ {_placed(case.text, kernel.offsets[case.key])} }}")
    struct_parameter = f", .param .align 8 .b8 memory_struct[{len(PARAMETERS)}]"
    kernel.ptx = entry_text("memory", _PREAMBLE + "\n".join(bodies), struct_parameter)
    return kernel


_PREAMBLE = """.shared .align 128 .b8 bytes[4096];
.reg .b32 %shared, %word; .reg .b64 %shared64;
mov.u32 %shared, bytes; cvt.u64.u32 %shared64, %shared;
mad.lo.u32 %word, %tid32, 16, %shared; mad.wide.u32 %at0, %tid32, 16, %in;
{ .reg .b32 e<4>;
ld.global.v4.b32 {e0, e1, e2, e3}, [%at0]; st.shared.v4.b32 [%word], {e0, e1, e2, e3}; }
mad.wide.u32 %at3, %tid32, 4, %in; bar.sync 0;
"""
