"""What Nsight Compute's profiles say: the report of one, and several beside each other."""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL

from ..bench import ncu_metrics
from ..bench.ncu_messages import advise, application_code, tail
from ..bench.ncu_metrics import Metric, MetricError
from ..bench.ncu_read import Launch, ReadError, read_csv
from ..bench.ncu_run import NcuError, find_ncu, import_report
from ..profiling import bottleneck
from ..profiling import bottleneck_metrics as m
from . import text
from .words import Words, words

_READ_LIMIT_S = 120
_LANES = 32
_STALL, _STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
_PER_CENT = {"%": 1.0}


def _percentage(name: str) -> Metric:
    return Metric(name, name, name, _PER_CENT)


LOAD_EFFICIENCY = _percentage("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct")
STORE_EFFICIENCY = _percentage("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct")
L1_HIT = _percentage("l1tex__t_sector_hit_rate.pct")
# Hits and misses of what the SMs asked for. lts__t_sector_hit_rate.pct is of all clients of
# L2, and counts hits in another replay of the kernel than accesses: up to 112 % were seen.
L2_HITS, L2_MISSES = (
    Metric(name, name, name)
    for name in (f"lts__t_sectors_srcunit_tex_lookup_{what}.sum" for what in ("hit", "miss"))
)
MEMORY = _percentage("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
ACTIVE_LANES = Metric("lanes", "smsp__thread_inst_executed_per_inst_executed.ratio", "lanes")
IPC = Metric("ipc", "sm__inst_executed.avg.per_cycle_active", "IPC")
_OWN = (
    LOAD_EFFICIENCY, STORE_EFFICIENCY, L1_HIT, L2_HITS, L2_MISSES, MEMORY, ACTIVE_LANES, IPC,
)  # fmt: skip
# What ncu_analysis.sh asks for beside `--set full`, which has not all of them.
METRICS = tuple(
    dict.fromkeys(
        metric.name
        for metric in (*_OWN, *m.METRICS, ncu_metrics.DURATION, ncu_metrics.CLOCK)
    )
)  # fmt: skip


class ProfileError(Exception):
    """There is nothing to be had from a profile; the message says why and what to do."""


def report(options: argparse.Namespace) -> int:
    """Prints the seed's deep-analysis figures of one profile, and what limits the kernel."""
    say = words(options.lang)
    log = _log(options.log)
    if application_code(log) == EXIT_FAILED:
        print(f"wrong: the profiled run failed its check:\n{tail(log)}", file=sys.stderr)
        return EXIT_FAILED
    try:
        launch = read_profile(options.report, options.ncu, log)
    except ProfileError as error:
        print(f"no data: {error}", file=sys.stderr)
        return EXIT_NO_DATA
    names = ", ".join([*options.named, *(f"N_CTX={n}" for n in options.n_ctx if options.named)])
    print(f"{text.RULE}\n{options.report}" + (f": {names}" if names else ""))
    print(f"{launch.symbol}\n{text.RULE}")
    print("\n".join(describe(launch, say)))
    return EXIT_OK


def _log(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"==ERROR== cannot read {path}: {error.strerror}"


def read_profile(path: Path, ncu: str | None, log: str = "") -> Launch:
    """The longest launch in a profile: helpers run beside some kernels. Raises ProfileError."""
    if not path.is_file() or not path.stat().st_size:
        why = [f"there is no profile {path}", *advise(log)]
        raise ProfileError("\n".join(why + ([tail(log)] if log else [])))
    try:
        done = import_report(find_ncu(ncu), path, _READ_LIMIT_S, "--page", "raw")
        launches = read_csv(done.stdout).launches
    except (NcuError, ReadError, OSError, subprocess.SubprocessError) as error:
        raise ProfileError(f"ncu cannot read {path}: {error}") from error
    if not launches:
        said = "; ".join(advise(done.stdout + done.stderr)) or tail(done.stdout + done.stderr)
        raise ProfileError(f"{path} holds no kernel: {said or 'ncu printed nothing'}")
    return max(launches, key=lambda launch: _value(launch, ncu_metrics.DURATION) or 0.0)


def _value(launch: Launch, metric: Metric) -> float | None:
    try:
        return metric.read(launch.values)
    except MetricError:
        return None


@dataclass(frozen=True)
class Figure:
    """`value` None: ncu did not measure it, or it means nothing here (`note` says why)."""

    key: str
    value: float | None
    unit: str = "%"
    note: str = ""
    digits: int = 2

    def line(self, say: Words) -> str:
        value = "n/a"
        if self.value is not None:
            value = f"{text.fixed(self.value, self.digits)} {self.unit}".rstrip()
        return f"  {say(self.key)}: {value}" + (f" ({self.note})" if self.note else "")


def memory_figures(launch: Launch) -> list[Figure]:
    efficiencies = [
        _efficiency(launch, metric, key, sectors)
        for metric, key, sectors in (
            (LOAD_EFFICIENCY, "load efficiency", m.GLOBAL_SECTORS[0]),
            (STORE_EFFICIENCY, "store efficiency", m.GLOBAL_SECTORS[1]),
        )
    ]
    conflicts, wavefronts = (_count(launch, name) for name in (m.CONFLICTS, m.SHARED_WAVEFRONTS))
    share = None if conflicts is None or not wavefronts else 100 * conflicts / wavefronts
    hits, misses = _value(launch, L2_HITS), _value(launch, L2_MISSES)
    asked = None if hits is None or misses is None else hits + misses
    return [
        *efficiencies,
        Figure("l1 hit", _value(launch, L1_HIT)),
        Figure("l2 hit", 100 * hits / asked if hits is not None and asked else None),
        Figure("bank conflicts", conflicts, "", digits=0),
        Figure("bank conflict share", share),
        Figure("memory throughput", _value(launch, MEMORY)),
        Figure("dram throughput", _value(launch, _percentage(m.DRAM))),
    ]


def _efficiency(launch: Launch, metric: Metric, key: str, sectors: str) -> Figure:
    """Useful bytes of those moved. Of kernels that load or store through TMA there are none: the
    copy engine moves whole boxes."""
    if _count(launch, sectors) == 0:
        return Figure(key, None, note="no such instruction: TMA, or none at all")
    return Figure(key, _value(launch, metric))


def _count(launch: Launch, name: str) -> float | None:
    return _value(launch, Metric(name, name, name))


def compute_figures(launch: Launch) -> list[Figure]:
    lanes = _value(launch, ACTIVE_LANES)
    duration, clock = (_value(launch, x) for x in (ncu_metrics.DURATION, ncu_metrics.CLOCK))
    return [
        Figure("tensor use", _value(launch, _percentage(m.TENSOR))),
        Figure("warp efficiency", None if lanes is None else 100 * lanes / _LANES),
        Figure("issue efficiency", _value(launch, _percentage(m.ISSUE))),
        Figure("ipc", _value(launch, IPC), ""),
        Figure("occupancy", _value(launch, _percentage(m.OCCUPANCY))),
        Figure("duration", None if duration is None else duration / 1e6, "ms", "under ncu"),
        Figure("clock", None if clock is None else clock / 1e6, "MHz"),
    ]


def stall_reasons(launch: Launch) -> dict[str, float]:
    """Warps that wait for a reason, in the mean over issued instructions; the worst first."""
    found = {}
    for name in launch.values:
        if name.startswith(_STALL) and name.endswith(_STALL_END):
            value = _count(launch, name)
            if value:
                found[name.removeprefix(_STALL).removesuffix(_STALL_END)] = value
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def describe(launch: Launch, say: Words) -> list[str]:
    reasons = stall_reasons(launch)
    total = sum(reasons.values())
    stalls = [f"  {name}: {v:.2f} ({v / total:.0%})" for name, v in reasons.items()]
    return [
        f"# {say('deep analysis')}",
        text.section(say("memory access"), *(x.line(say) for x in memory_figures(launch))),
        text.section(say("compute"), *(x.line(say) for x in compute_figures(launch))),
        text.section(
            say("stalls"), "  warps waiting at each issued instruction, in the mean:",
            *(stalls or ["  n/a"]),
        ),
        text.section(say("bottleneck"), *_bottleneck(launch)),
    ]  # fmt: skip


def _bottleneck(launch: Launch) -> list[str]:
    try:
        finding = bottleneck.explain(m.values_of(launch))
    except MetricError as error:
        return [f"not known: {error}"]
    return [f"{finding.name}: {finding.paragraph}", *(f"  {line}" for line in finding.evidence)]


def section(options: argparse.Namespace, say: Words) -> tuple[list[str], int]:
    """The profiles that ncu_analysis.sh left, beside each other; and an exit code."""
    found: dict[str, Launch] = {}
    lines, code = [], EXIT_OK
    for n_ctx in options.n_ctx:
        for provider in options.provider:
            path = options.ncu_results / f"ncu_{provider}_{n_ctx}.ncu-rep"
            if not path.is_file():
                continue
            try:
                found[f"{provider}, {n_ctx}"] = read_profile(path, options.ncu)
            except ProfileError as error:
                lines.append(str(error))
                code = EXIT_PARTIAL
    if not found:
        hint = f"no profiles in {options.ncu_results}: ncu_analysis.sh makes them"
        return [*lines, hint], code
    return [_profiles_table(found, say), *lines], code


def _profiles_table(found: Mapping[str, Launch], say: Words) -> str:
    rows = []
    for name, launch in found.items():
        reasons = stall_reasons(launch)
        figures = {x.key: x.value for x in (*memory_figures(launch), *compute_figures(launch))}
        shown = ("tensor use", "issue efficiency", "l2 hit", "dram throughput", "duration")
        cells = ["n/a" if figures[k] is None else text.fixed(figures[k] or 0.0, 2) for k in shown]
        rows.append([name, *cells, next(iter(reasons), "-"), _bottleneck(launch)[0].split(":")[0]])
    columns = [
        say("provider"), f"{say('tensor use')} %", f"{say('issue efficiency')} %",
        f"{say('l2 hit')} %", f"{say('dram throughput')} %", f"{say('duration')} ms",
        say("stalls"), say("bottleneck"),
    ]  # fmt: skip
    return text.table(columns, rows)
