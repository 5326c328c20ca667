"""Micro-kernels of forms that only Triton writes: the switch of warp-specialised kernels, barriers
without a thread count, operands without a state space's second half, copies without `.tile`."""

from __future__ import annotations

from ...conformance.micro_kernel import Case
from ...conformance.scalar_kernels import scalar_prologue, scalar_text, triton_sm90_cases
from ...conformance.values import N, random_bits
from .hopper_kernel import HopperKernels, MapSpec, hopper_entry

THREADS = 64
_TILE = 64 * 8 * 2  # bytes of a box, and of a tensor

# The arms of the switch are in another order than their numbers, two of them the same, one a loop's
# head; every thread takes the one that its lane names.
_SWITCH = """and.b32 %index, %lane, 3; mov.u32 %d, 1;
HEAD: add.u32 %d, %d, %word;
TARGETS: .branchtargets ARM_0, ARM_1, AGAIN, ARM_0;
brx.idx %index, TARGETS;
ARM_1: xor.b32 %d, %d, 0x11111111; bra.uni LEFT;
ARM_0: xor.b32 %d, %d, 0x22222222; bra.uni LEFT;
AGAIN: mov.u32 %index, 1; bra.uni HEAD;
LEFT:"""
# Nested scopes have labels and registers of the same names.
_SCOPES = """mov.u32 %d, 0;
{ .reg .pred %done; TOP: add.u32 %d, %d, %lane; setp.gt.u32 %done, %d, 99; @%done bra.uni OUT;
  add.u32 %d, %d, 1; bra TOP; OUT: }
{ .reg .pred %done; TOP: add.u32 %d, %d, %lane; setp.gt.u32 %done, %d, 777; @%done bra.uni OUT;
  add.u32 %d, %d, 3; bra TOP; OUT: }"""
_CASES = (
    # A thread in 16 votes; twice, as the barrier is used again. The first
    # case: behind the switch a warp may be in parts, and bar.red wants it whole.
    ("bar.red.or.pred", "and.b32 %d, %tid32, 15; setp.eq.u32 %q, %d, 3; "
     "bar.red.or.pred %q, 12, 64, %q; selp.b32 %d, 1, 0, %q; setp.ge.u32 %q, %tid32, 64; "
     "bar.red.or.pred %q, 12, 64, %q; selp.b32 %index, 2, 0, %q; add.u32 %d, %d, %index;"),
    ("brx.idx", _SWITCH),
    ("bra.uni", _SCOPES),
    ("barrier.sync", "st.shared.b32 [%own], %word; barrier.sync 1; xor.b32 %at32, %own, 128; "
     "ld.shared.b32 %d, [%at32]; barrier.sync 1;"),
    ("ld.shared.b8", "st.shared.b32 [%own], %word; ld.shared.b8 %d, [%own+1];"),
    ("mov.pred", "mov.pred %q, -1; selp.u32 %d, %word, 5, %q; mov.pred %q, 0; "
     "selp.u32 %d, 3, %d, %q;"),
    ("pmevent", "pmevent 1; mov.u32 %d, %word;"),
    ("addc.u32", "add.cc.u32 %d, %word, %word; mov.u32 %index, 7; addc.u32 %d, %index, 9;"),
    ("add.cc.u32", "add.cc.u32 %d, %word, %word;"),
    # The first lane of four writes four words, of which each reads its own.
    ("st.shared::cta.v4.b32", "and.b32 %index, %lane, 3; setp.eq.u32 %q, %index, 0; "
     "barrier.sync 1; @%q st.shared::cta.v4.b32 [%own], {%word, %lane, %tid32, %word}; "
     "bar.warp.sync -1; ld.shared.b32 %d, [%own];"),
)  # fmt: skip


def triton_kernels() -> HopperKernels:
    """Two warps; one word of each thread is the result."""
    cases = [Case(f"{form}, of Triton", form, text, "u4", THREADS) for form, text in _CASES]
    kernels = HopperKernels("triton_forms", "", random_bits(96, THREADS // 2), cases, 1, THREADS)
    lines = [
        f".shared .align 128 .b8 words[{4 * THREADS}];",
        ".reg .b32 %d, %word, %own, %at32, %index; .reg .pred %q;",
        "mad.wide.u32 %at0, %tid32, 4, %in; ld.global.b32 %word, [%at0]; mov.u32 %own, words;",
        "mad.lo.u32 %own, %tid32, 4, %own;",
    ]
    for case in cases:
        lines.append(f"{case.text} st.global.b32 [%o4+{kernels.offsets[case.key]}], %d;")
    kernels.ptx = hopper_entry("triton_forms", "\n".join(lines), block=THREADS)
    return kernels


def triton_arithmetic() -> HopperKernels:
    """Arithmetic of bf16, which sm_90 has."""
    prologue, inputs = scalar_prologue()
    entry, threads = "triton_arithmetic", 128
    kernels = HopperKernels(
        entry, "", inputs, triton_sm90_cases(), N // threads, threads, preamble=prologue
    )
    kernels.ptx = hopper_entry(entry, scalar_text(kernels, prologue), block=threads)
    return kernels


LOAD = "cp.async.bulk.tensor.{}d.shared::{}.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group"


def _spec(of_output: bool, start: int, rank: int) -> MapSpec:
    dims = (8, 64, 1, 1, 1)[:rank]
    return MapSpec(of_output, start, 2, dims, (16, _TILE, _TILE, _TILE)[: rank - 1], dims)


def triton_copies(space: str = "cluster") -> HopperKernels:
    """A tile in and out again, in each rank but one. `space` "cta": as Triton writes it since 3.7,
    with the address of the parameter in 32 bits, as since 3.9."""
    ranks = (2, 3, 4, 5)
    loads = [LOAD.format(rank, space) for rank in ranks]
    cases = [
        Case(f"{load}, of Triton", load, STORE.format(rank), "u4", 256)
        for rank, load in zip(ranks, loads, strict=True)
    ]
    entry = "triton_copies" if space == "cluster" else f"triton_copies_{space}"
    address = f"mov.b64 %maps, {entry}_maps;"
    if space == "cta":
        address = f"mov.b32 %tile, {entry}_maps; cvt.u64.u32 %maps, %tile;"
    maps = [_spec(False, _TILE * i, rank) for i, rank in enumerate(ranks)]
    maps += [_spec(True, _TILE * i, rank) for i, rank in enumerate(ranks)]
    data = random_bits(97, len(ranks) * _TILE // 8)
    kernels = HopperKernels(entry, "", data, cases, 1, 32, maps=maps)
    lines = [
        f".shared .align 1024 .b8 tile[{_TILE}]; .shared .align 8 .b8 full[8];",
        ".reg .b32 %tile, %full; .reg .b64 %maps, %map; .reg .pred %other;",
        f"{address} cvta.param.u64 %maps, %maps; mov.u32 %tile, tile; mov.u32 %full, full;",
        "setp.ne.u32 %other, %lane, 0; @%other bra END;",
        "mbarrier.init.shared::cta.b64 [%full], 1; fence.proxy.async.shared::cta;",
    ]
    for i, (rank, load) in enumerate(zip(ranks, loads, strict=True)):
        place = ", ".join(["0"] * rank)
        lines.append(
            f"add.u64 %map, %maps, {128 * i};\n"
            f"mbarrier.arrive.expect_tx.shared.b64 _, [%full], {_TILE};\n"
            f"{load} [%tile], [%map, {{{place}}}], [%full];\n"
            "{ .reg .pred complete; waitLoop:\n"
            f"mbarrier.try_wait.parity.shared.b64 complete, [%full], {i % 2};\n"
            "@!complete bra.uni waitLoop; }\n"
            f"add.u64 %map, %maps, {128 * (i + len(ranks))};\n"
            f"{STORE.format(rank)} [%map, {{{place}}}], [%tile];\n"
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        )
    kernels.ptx = hopper_entry(entry, "\n".join([*lines, "END:"]), len(maps), 32)
    return kernels
