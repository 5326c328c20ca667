"""Planted bugs of the Hopper family's fused backward kernels that change nothing, each with its
proof, and those that the emulator cannot show (backward_campaign.py)."""

from __future__ import annotations

from collections.abc import Callable

from flash_helpers.kernel_configs import Variant
from flash_helpers.kernels.backward_config import BackwardKernelConfig
from flash_helpers.kernels.sm90_bwd_fused.config import FusedBackwardKernelConfig

from ..redundant import Redundant


def _is_fused(config: BackwardKernelConfig, variant: Variant) -> bool:
    return isinstance(config, FusedBackwardKernelConfig)


def _delays(config: BackwardKernelConfig, variant: Variant) -> bool:
    """Sums are multiplied when dS is known."""
    return isinstance(config, FusedBackwardKernelConfig) and config.staging_buffers() == 1


def _tests_ahead(config: BackwardKernelConfig, variant: Variant) -> bool:
    return _is_fused(config, variant) and not _delays(config, variant)


def _has_one_tile(config: BackwardKernelConfig, variant: Variant) -> bool:
    """As long as a thread block lives."""
    return _is_fused(config, variant) and config.SERVES


def _comes_in_pairs(config: BackwardKernelConfig, variant: Variant) -> bool:
    return config.cluster(variant) > 1


def _fused(
    mutant: str, line: str, proof: str, within: str = "", when: Callable[..., bool] = _is_fused
) -> Redundant:
    return Redundant(mutant, line, proof, when, within)


# Which step of a block of keys: the first one, the last, or one with others on either side.
FIRST, LAST, AMONG = "step<true, ", ", true>();", "step<false, false>();"
LAST_OF_SEVERAL = "step<false, true>();"
_EMPTY = "empty yet, or waited for at the end of the tile before"
FUSED_REDUNDANT = (
    _fused(
        "bar.warp.sync removed",
        "this->derive(Base::rule(), mask, dots);",
        "the lanes come together when they share dS, before lane 0 releases Q",
    ),
    _fused(
        "bar.warp.sync removed",
        "share_ds<kIsFirst>();  // here, as its fence then waits while these are multiplied",
        """dS is multiplied in the next step, behind the wait for the ring's other stage, which each
        warp releases when its lanes have met at the matmuls behind their fences""",
        AMONG,
    ),
    _fused(
        "bar.warp.sync removed",
        "__syncwarp();  // barriers are for whole warps",
        "the barrier that tells of room waits for lane 0, too",
    ),
    _fused(
        "bar.sync removed",
        "FLASH_DEVICE void meet() const { ptx::bar_sync(kSender + sender, 32); }",
        "each lane has waited for the sums itself; the barrier is for ptxas",
    ),
    _fused(
        "bar.warp.sync removed",
        "make_room(share);",
        "the same, behind lane 0's wait for the others' sums",
    ),
    _fused(
        "wgmma.fence removed",
        "issue_gradients(d_o_there);",
        "nothing touches dP between the fence that precedes the scores and this one",
    ),
    _fused(
        "wgmma.fence removed",
        "if constexpr (!kIsLast) issue_scores(q_there);",
        "nothing touches P between the fence that precedes dK and this one",
    ),
    _fused(
        "wgmma.fence removed",
        "if constexpr (!kIsFirst) issue_d_q(ds_there);",
        "nothing touches the share of dQ between the fence that precedes dK and this one",
    ),
    _fused(
        "wgmma.commit_group removed",
        "Mm::issue_sum(d_weights, q, d_k);",
        """what is loaded over Q of the last step comes behind the next tile's V, and that behind
        dQ, which closes the group""",
        LAST,
    ),
    *(
        _fused(
            mutant,
            "Mm::template wait<kIsFirst ? 0 : 1>(d_k);",
            """dQ, issued behind dK, is waited for before the sums are stored; what is loaded over Q
            and dO of the last step comes behind the next tile's V, and that behind dQ""",
            LAST,
        )
        for mutant in ("wgmma.wait_group removed", "wait weakened")
    ),
    _fused(
        "bar.sync removed",
        "meet();  // the group has multiplied by V",
        "a matmul group is over for all four warps when it is for one, and each has waited for dP",
    ),
    *(
        _fused(
            mutant,
            "if (!gradients().is_last(smem.ds(0))) return rows.give_v_back();",
            """the warp has staged nothing since it took the tile, behind the wait for all that it
            had staged before""",
        )
        for mutant in (
            "cp.async.bulk.commit_group removed",
            "cp.async.bulk.wait_group removed",
            "wait weakened",
        )
    ),
    *(
        _fused("mbarrier wait passed", f"{wait}(smem.ds_empty(ds_ring.buffer)", _EMPTY, FIRST)
        for wait in ("is_over<!(kDelaysSums && kIsLast)>", "sm90::wait_phase")
    ),
    _fused(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.empty2(ring2.buffer)",
        """the Q loaded just before needed a release that comes behind all matmuls of its step,
        those that read dO among them""",
    ),
    *(
        _fused(
            "wgmma.fence removed",
            "Mm::issue_sum(d_weights, q, d_k);",
            "nothing touches dK, or dS in 16 bits, between the fence that precedes dV and this one",
            within,
            _delays,
        )
        for within in (AMONG, LAST)
    ),
    _fused(
        "wgmma.commit_group removed",
        "if constexpr (kDelaysSums) Mm::issue_sum(weights, d_o, d_v);",
        "dK follows at once, closes the group with its own, and is waited for",
        when=_delays,
    ),
    *(
        _fused(
            "arrival lost",
            f"release(smem.{buffer});",
            "nothing is loaded or written behind the last step of a thread block",
            LAST,
            _has_one_tile,
        )
        for buffer in (
            "empty1(ring.buffer)", "empty2(ring.buffer)", "ds_empty(ds_ring.before().buffer)",
        )
    ),
    Redundant(
        "wgmma.fence removed",
        "Mm::issue_sum(rounded, smem.other2(ring2.buffer), sums);",
        "nothing touches dV or the weights between the fence that precedes the scores and this one",
        _comes_in_pairs,
        "step<kHides>();",
    ),
    Redundant(
        "mbarrier wait passed",
        "sm90::wait_phase(smem.weights_empty(weights_ring.buffer)",
        "nobody has been given weights before the first ones",
        _comes_in_pairs,
        "weigh<Hides::kMaybe>();",
    ),
    *(
        Redundant(
            "bar.warp.sync removed",
            line,
            "lanes that go on ask each other for what they have read of the tile, and meet there",
            _comes_in_pairs,
        )
        for line in (
            "__syncwarp();  // all lanes have read what is taken in its place",
            "__syncwarp();  // one lane alone has kept turns",
        )
    ),
    Redundant(
        "bar.warp.sync removed",
        "__syncwarp();  // all lanes have read their RowStats, which go with Q",
        "the lanes come together when they share dS, before lane 0 gives Q back",
        _comes_in_pairs,
    ),
    Redundant(
        "order weakened",
        "SectionCounters<kConfig>{args, work.pair}.template await_prepared<true>();",
        "the producer has acquired the same, and hands it on with the RowStats that dS is made of",
        _comes_in_pairs,
    ),
)  # fmt: skip
# Needed, and not planted.
UNSEEN = (
    Redundant(
        "bar.warp.sync removed",
        "__syncwarp();         // one lane alone has stored",
        """brings a warp's lanes together in front of the cluster's barrier, which wants them so; in
        the emulator they are wherever all come to the same instruction""",
        _comes_in_pairs,
    ),
    Redundant(
        "bar.warp.sync removed",
        "// lane 0 says so for all",
        """orders what other lanes have prepared before the release; two pairs, which are launched
        here, meet often enough between a section and the one that it prepares""",
        _comes_in_pairs,
    ),
    *(
        Redundant(
            "fence.proxy.async removed",
            "ptx::fence_proxy_async_global();",
            "of what other blocks wrote: the emulator asks for fences within a block",
            when,
        )
        for when in (_is_fused, _comes_in_pairs)
    ),
    *(
        _fused(
            "mbarrier wait passed",
            "if (!ds_free) sm90::wait_phase(smem.ds_empty(ds_ring.buffer)",
            """comes behind a test_wait that has failed, which in the emulator it does for single
            lanes: the others of the warp wait, and what writes dS brings all together""",
            within,
            when,
        )
        for within, when in ((AMONG, _is_fused), (LAST_OF_SEVERAL, _tests_ahead))
    ),
)
