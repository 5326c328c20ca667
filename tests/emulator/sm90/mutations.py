"""Planted bugs for Hopper kernels: each synchronisation left out, or weaker than it must be."""

from __future__ import annotations

import re

from ..mutations import Mutant, mutants_of_lines, removed

# Removed whole, each of them in turn.
INSTRUCTIONS = (
    *("bar.sync", "bar.arrive", "barrier.sync", "bar.warp.sync", "barrier.cluster"),
    *("fence.proxy.async", "fence.mbarrier_init"),
    *("wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"),
    *("cp.async.bulk.commit_group", "cp.async.bulk.wait_group"),
)


def passed_waits(ptx: str) -> list[Mutant]:
    """mbarrier waits that are over at once."""

    def edit(line: str) -> str:
        return re.sub(r"mbarrier\.t\w+_wait\S* +(%?\w+),[^;]*;", r"setp.eq.u32 \1, 0, 0;", line)

    return mutants_of_lines(ptx, "mbarrier wait passed", r"mbarrier\.(?:try|test)_wait", edit)


def lost_arrivals(ptx: str) -> list[Mutant]:
    return mutants_of_lines(ptx, "arrival lost", r"mbarrier\.arrive", lambda line: "")


def unannounced_bytes(ptx: str) -> list[Mutant]:
    """arrive.expect_tx as a plain arrival, and with 16 bytes too many."""

    def plain(line: str) -> str:
        return re.sub(r"\.expect_tx(.*\]), *[^;]+;", r"\1;", line)

    def more(line: str) -> str:
        number = re.search(r", *([^\s,]+);", line)
        assert number
        if not number[1].startswith("%"):
            return line.replace(number[0], f", {int(number[1]) + 16};")
        add, subtract = (f"{op}.u32 {number[1]}, {number[1]}, 16;" for op in ("add", "sub"))
        return f"{add} {line.strip()} {subtract}"

    pattern = r"mbarrier\.arrive\.expect_tx"
    return mutants_of_lines(ptx, "bytes unannounced", pattern, plain) + mutants_of_lines(
        ptx, "too many bytes announced", pattern, more
    )


def weakened_waits(ptx: str) -> list[Mutant]:
    """Waits that let one group more be in flight."""

    def edit(line: str) -> str:
        return re.sub(r"(wait_group\S*\s+)(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1}", line, count=1)

    return mutants_of_lines(
        ptx, "wait weakened", r"^\s*(?:wgmma|cp\.async\.bulk)\.wait_group", edit
    )


def orders_of_blocks(ptx: str) -> list[Mutant]:
    """Flags between thread blocks: releases and acquires that are relaxed, and flags not set."""

    def relaxed(line: str) -> str:
        return re.sub(r"\.(acquire|release)\.gpu", ".relaxed.gpu", line)

    flags = r"(?:ld|red|atom)\.(?:acquire|release)\.gpu\.global"
    return [
        *mutants_of_lines(ptx, "order weakened", flags, relaxed),
        *mutants_of_lines(ptx, "flag not set", r"red\.\w+\.gpu\.global", lambda line: ""),
    ]


def hopper_synchronisation(ptx: str) -> list[Mutant]:
    removals = [mutant for name in INSTRUCTIONS for mutant in removed(ptx, name)]
    waits = [*passed_waits(ptx), *weakened_waits(ptx)]
    return [*removals, *waits, *lost_arrivals(ptx), *unannounced_bytes(ptx)]
