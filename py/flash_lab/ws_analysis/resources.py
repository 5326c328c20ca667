"""What a kernel takes of an SM, and how its tiles fill the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from flash_helpers.base.dtypes import DType
from flash_helpers.kernels.problem import AttentionProblem

from ..bench.results import Measurement, ProblemResult, gpu_sms
from ..bench.row import Json
from ..bench.row_fields import is_size
from ..waves.occupancy import LIMITS
from ..waves.occupancy import occupancy as sm_occupancy
from ..waves.plan import WavePlan, plan
from . import text
from .words import Words

if TYPE_CHECKING:
    from flash_attention.triton_kit.offline import Compiled

_WARP = 32
_CAPABILITY = (9, 0)  # warp-specialised kernels run on Hopper only
_WORTH_SAYING = 0.9  # of the places filled


def section(problems: Sequence[ProblemResult], environment: Json, say: Words) -> list[str]:
    """One row for each provider whose kernel is known."""
    columns = [
        say("provider"), "N_CTX", say("registers"), say("spills"), say("shared"),
        say("blocks per SM"), say("occupancy %"), say("tiles"), say("waves"),
        say("wave efficiency %"),
    ]  # fmt: skip
    measured = text.measured(problems)
    known = [m for m in measured if _is_known(m)]
    if not known:
        return ["no kernel with known resources was measured: cuDNN and flash-attn keep theirs"]
    sms = gpu_sms(environment)
    rows = [_row(m, sms) for m in known]
    others = dict.fromkeys(m.row.provider for m in measured if m not in known)
    lines = [text.table(columns, rows), *_sentences(known, sms)]
    if others:
        lines.append(f"not known without ncu: {', '.join(others)}")
    return lines


def _is_known(m: Measurement) -> bool:
    needed = (m.row.threads, m.row.registers, m.row.spilled_bytes, m.row.shared_bytes)
    has_tile = is_size(dict(text.parameters(m)).get("BLOCK_M"))
    return has_tile and bool(m.row.blocks_per_sm) and None not in needed


def _row(m: Measurement, sms: int) -> list[str]:
    r = m.row
    waves = wave_plan(m, sms)
    return [
        r.provider, str(m.problem.seqlen_q), str(r.registers), str(r.spilled_bytes),
        f"{(r.shared_bytes or 0) / 1024:.1f}", str(r.blocks_per_sm), f"{occupancy(m):.1f}",
        str(tiles(m)), str(waves.waves) if waves else "-",
        f"{100 * waves.efficiency:.1f}" if waves else "-",
    ]  # fmt: skip


def occupancy(m: Measurement) -> float:
    """Per cent of the warps that an SM can hold."""
    warps = (m.row.blocks_per_sm or 0) * (m.row.threads or 0)
    return 100 * warps / LIMITS[_CAPABILITY].threads


def tiles(m: Measurement) -> int:
    """Blocks of query rows. A persistent kernel launches fewer blocks, each of which goes through
    several tiles; the last wave of tiles is the same."""
    p = m.problem
    block_m = int(dict(text.parameters(m))["BLOCK_M"])
    return p.batch * p.n_heads * -(-p.seqlen_q // block_m)


def wave_plan(m: Measurement, sms: int) -> WavePlan | None:
    """None where the number of SMs is not known."""
    return plan(tiles(m), sms, m.row.blocks_per_sm or 0) if sms else None


def _sentences(known: Sequence[Measurement], sms: int) -> list[str]:
    """About what is not as it should be, and where the GPU is not filled."""
    lines = []
    for m in known:
        where = f"{m.row.provider}, N_CTX={m.problem.seqlen_q}"
        if m.row.spilled_bytes:
            lines.append(f"{where}: {m.row.spilled_bytes} bytes a thread are spilled.")
        waves = wave_plan(m, sms)
        if waves and waves.efficiency < _WORTH_SAYING:
            lines.append(
                f"{where}: {waves.blocks} tiles leave {1 - waves.efficiency:.0%} of the places on "
                f"{sms} SMs empty over {waves.waves} wave(s)."
            )
    return lines


def of_gluon(config: Any, problem: AttentionProblem, *, ping_pong: bool) -> Json:
    """What a row says of a Gluon kernel, which is compiled once more for it: registers, shared
    memory, blocks an SM. A figure beside the time: not to have it costs no row."""
    try:
        compiled = compiled_as(config, ping_pong, problem.dtype, problem.d_head, problem.causal)
        threads = compiled.n_warps * _WARP
        on_sm = sm_occupancy(_CAPABILITY, threads, compiled.registers, compiled.shared_bytes)
    except Exception as error:  # Triton and ptxas fail in many ways
        return {"note": f"its resources are not known: {type(error).__name__}: {error}"[:300]}
    return {
        "registers": compiled.registers,
        "spilled_bytes": compiled.stack_bytes,
        "shared_bytes": compiled.shared_bytes,
        "threads": threads,
        "blocks_per_sm": on_sm.blocks_per_sm,
    }


@cache
def compiled_as(config: Any, ping_pong: bool, dtype: DType, d_head: int, causal: bool) -> Compiled:
    from flash_attention.gluon.op import GluonAttention

    return GluonAttention(ping_pong).compile(config, dtype.name.lower(), d_head, causal)
