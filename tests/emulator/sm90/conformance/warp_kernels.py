"""Micro-kernels of stmatrix, elect, mbarrier, setmaxnreg, and of what else Hopper kernels use."""

from __future__ import annotations

import numpy as np

from ...conformance.micro_kernel import Case
from ...conformance.values import random_bits
from .hopper_kernel import HopperKernels, hopper_entry

LANES = 32


def stmatrix_kernels() -> HopperKernels:
    """Every lane names a row of its own, in random order; all of shared memory is the answer."""
    order = np.argsort(random_bits(90, LANES)).astype(np.uint32) * np.uint32(16)
    values = random_bits(91, LANES * 2).view(np.uint32)
    cases = []
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            form = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            registers = ", ".join(f"m{i}" for i in range(count))
            cases.append(Case(form, form, f"{form} [at], {{{registers}}};", "u4", 128))
    kernels = HopperKernels("stmatrix", "", np.concatenate([order, values]), cases, 1, LANES)
    lines = [
        ".shared .align 128 .b8 rows[512]; .reg .b32 %base, %own; mov.u32 %base, rows;",
        "mad.lo.u32 %own, %lane, 16, %base; mad.wide.u32 %at0, %lane, 4, %in;",
        "mad.wide.u32 %at1, %lane, 16, %in;",
    ]
    for case in cases:
        place = kernels.offsets[case.key]
        lines.append(
            "{ .reg .b32 m<4>, e<4>, at; ld.global.b32 at, [%at0]; add.u32 at, at, %base; "
            "ld.global.v4.b32 {m0, m1, m2, m3}, [%at1+128]; "
            "mov.b32 e0, -1; st.shared.v4.b32 [%own], {e0, e0, e0, e0}; bar.warp.sync -1; "
            f"{case.text} bar.warp.sync -1; ld.shared.v4.b32 {{e0, e1, e2, e3}}, [%own]; "
            f"mad.wide.u32 %at2, %lane, 16, %out; "
            f"st.global.v4.b32 [%at2+{place}], {{e0, e1, e2, e3}}; bar.warp.sync -1; }}"
        )
    kernels.ptx = hopper_entry("stmatrix", "\n".join(lines), block=LANES)
    return kernels


_ELECT = "elect.sync %leader|%chosen, %mask;"


def elect_kernels() -> HopperKernels:
    """Leader and predicate of every lane: of the whole warp, then of parts that branch apart."""
    masks = (0xFFFF0000, 0x0000F010, 0x00000FEF)
    cases = [
        Case("elect", "elect.sync", f"{_ELECT} -1", "u4", 64),
        Case("elect in parts", "elect.sync", f"{_ELECT} {masks}", "u4", 64),
    ]
    kernels = HopperKernels("elect", "", random_bits(92, 2), cases, 1, LANES)
    whole, parts = kernels.offsets.values()
    lines = [
        ".reg .b32 %leader, %mask, %flag, %own; .reg .pred %chosen, %inside;",
        "shl.b32 %own, 1, %lane; mad.wide.u32 %at2, %lane, 8, %out; mov.u32 %mask, -1;",
        f"{_ELECT} selp.u32 %flag, 1, 0, %chosen;",
        f"st.global.v2.b32 [%at2+{whole}], {{%leader, %flag}};",
    ]
    for i, mask in enumerate(masks):
        lines.append(
            f"mov.u32 %mask, {mask}; and.b32 %flag, %mask, %own; setp.ne.u32 %inside, %flag, 0; "
            f"@!%inside bra OUT_{i}; {_ELECT} selp.u32 %flag, 1, 0, %chosen; "
            f"st.global.v2.b32 [%at2+{parts}], {{%leader, %flag}}; bra END; OUT_{i}:"
        )
    kernels.ptx = hopper_entry("elect", "\n".join([*lines, "END:"]), block=LANES)
    return kernels


# Steps on one barrier of two arrivals, by thread 0; behind each, which parities have passed.
_STEPS = (
    ("arrive", "mbarrier.arrive.shared::cta.b64 _, [%barrier];"),
    ("expect_tx", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%barrier], 16;"),
    ("arrive", "mbarrier.arrive.shared::cta.b64 _, [%barrier];"),
    ("copy", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%tile], [%in], 16, [%barrier];"),
    ("two arrivals", "mbarrier.arrive.shared::cta.b64 _, [%barrier], 2;"),
    ("arrive.expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%barrier], 16;"),
    ("copy", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%tile], [%in], 16, [%barrier];"),
    ("arrive", "mbarrier.arrive.release.cta.shared::cta.b64 _, [%barrier];"),
)  # fmt: skip


def mbarrier_kernels() -> HopperKernels:
    """Phases of a barrier. Behind a copy that completes a phase the kernel waits for it."""
    completes = {3: 0, 7: 0}  # step -> parity of the phase that it completes
    test = "mbarrier.test_wait.parity.shared::cta.b64"
    text = "; ".join(step for _, step in _STEPS)
    cases = [Case("mbarrier phases", test, text, "u4", 2 * (1 + len(_STEPS)))]
    kernels = HopperKernels("mbarrier", "", random_bits(93, 2), cases, 1, LANES)
    lines = [
        ".shared .align 16 .b8 tile[16]; .shared .align 8 .b8 barrier[8];",
        ".reg .b32 %tile, %barrier, %flag<2>; .reg .pred %first, %done<2>;",
        "mov.u32 %tile, tile; mov.u32 %barrier, barrier; setp.ne.u32 %first, %lane, 0;",
        "@%first bra END; mbarrier.init.shared::cta.b64 [%barrier], 2;",
        "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;",
        _observe(test, 0),
    ]
    for i, (_, step) in enumerate(_STEPS):
        lines.append(step)
        if i in completes:
            lines.append(
                f"WAIT_{i}: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %done0, "
                f"[%barrier], {completes[i]}; @!%done0 bra WAIT_{i};"
            )
        lines.append(_observe(test, 8 * (i + 1)))
    kernels.ptx = hopper_entry("mbarrier", "\n".join([*lines, "END:"]), block=LANES)
    return kernels


def _observe(test: str, place: int) -> str:
    return (
        f"{test} %done0, [%barrier], 0; {test} %done1, [%barrier], 1; "
        "selp.u32 %flag0, 1, 0, %done0; selp.u32 %flag1, 1, 0, %done1; "
        f"st.global.v2.b32 [%out+{place}], {{%flag0, %flag1}};"
    )


def setmaxnreg_kernels() -> HopperKernels:
    """Values survive: one warpgroup gives up registers, two take them."""
    form = "setmaxnreg.inc.sync.aligned.u32"
    threads = 384
    cases = [Case("setmaxnreg", form, "24 and 240", "u4", threads)]
    kernels = HopperKernels("setmaxnreg", "", random_bits(94, threads // 2), cases, 1, threads)
    body = """.reg .b32 %value; .reg .pred %gives; setp.lt.u32 %gives, %tid32, 128;
mad.wide.u32 %at0, %tid32, 4, %in; ld.global.b32 %value, [%at0];
@%gives bra GIVE; setmaxnreg.inc.sync.aligned.u32 240; bra STORE;
GIVE: setmaxnreg.dec.sync.aligned.u32 24;
STORE: st.global.b32 [%o4], %value;"""
    text = hopper_entry("setmaxnreg", body, block=threads)
    kernels.ptx = text.replace(".reqntid", ".maxntid").replace(
        "1, 1\n{", "1, 1\n.minnctapersm 1\n{"
    )
    return kernels


# (form, text): %d is the result, or %d2 with it; %cell a word of the output of the thread's own,
# 0xEE bytes; %word a word of the inputs; %warp0 tells the first of two warps.
_OTHERS = (
    ("atom.global.add.u32", "atom.global.add.u32 %d, [%cell], %word; ld.global.b32 %d2, [%cell];"),
    ("atom.global.exch.b32", "atom.global.exch.b32 %d, [%cell], %word; "
     "ld.global.b32 %d2, [%cell];"),
    ("st.global.u32", "st.global.u32 [%cell], %word; ld.global.b32 %d, [%cell];"),
    ("bar.red.or.pred", "setp.eq.u32 %q, %tid32, 37; bar.red.or.pred %q, 2, 64, %q; "
     "selp.u32 %d, 1, 0, %q; setp.eq.u32 %q, %tid32, 99; bar.red.or.pred %q, 2, 64, %q; "
     "selp.u32 %d2, 1, 0, %q;"),
    ("bar.arrive", "@!%warp0 bra TAKE; st.shared.b32 [%own], %word; bar.arrive 3, 64; bra GIVEN; "
     "TAKE: bar.sync 3, 64; xor.b32 %d, %own, 128; ld.shared.b32 %d, [%d]; GIVEN:"),
    ("ld.param.v2.u32", "ld.param.v2.u32 {%d, %d2}, [other_struct+8];"),
    ("ld.param.v4.u32", "ld.param.v4.u32 {%d, %d2, %d, %d2}, [other_struct+16];"),
    ("cvta.param.u64", "mov.b64 %p64, other_struct; cvta.param.u64 %p64, %p64; "
     "ld.u32 %d, [%p64+4];"),
)  # fmt: skip


def other_kernels() -> HopperKernels:
    """Two warps."""
    threads = 64
    arguments = [bytes(range(32))]
    cases = [Case(f"{form} once more", form, text, "u4", 3 * threads) for form, text in _OTHERS]
    kernels = HopperKernels(
        "other", "", random_bits(95, threads // 2), cases, 1, threads, arguments
    )
    lines = [
        ".shared .align 128 .b8 words[256];",
        ".reg .b32 %d, %d2, %word, %own; .reg .b64 %cell, %p64; .reg .pred %q, %warp0;",
        "mad.wide.u32 %at0, %tid32, 4, %in; ld.global.b32 %word, [%at0]; mov.u32 %own, words;",
        "mad.lo.u32 %own, %tid32, 4, %own; setp.lt.u32 %warp0, %tid32, 32;",
    ]
    for case in cases:
        place = kernels.offsets[case.key]
        lines.append(
            f"mov.u32 %d, 5; mov.u32 %d2, 7; add.u64 %cell, %o4, {place}; {case.text} "
            f"mad.wide.u32 %at1, %tid32, 8, %out; "
            f"st.global.v2.b32 [%at1+{place + 4 * threads}], {{%d, %d2}};"
        )
    kernels.ptx = hopper_entry(
        "other", "\n".join(lines), block=threads, parameter=".param .align 16 .b8 other_struct[32]"
    )
    return kernels
