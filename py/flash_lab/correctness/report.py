"""The tables, the summary and the exit code of a run."""

from collections import Counter
from collections.abc import Sequence

from prettytable import PrettyTable

from flash_helpers.base import csv_text
from flash_helpers.base.tool import EXIT_FAILED, EXIT_NO_DATA, EXIT_OK, EXIT_PARTIAL

from .runner import FAIL, NOT_RUN, PASS, Options, Row
from .selection import Skipped


def exit_code(rows: Sequence[Row]) -> int:
    """A wrong result outranks a missing one. Without a single result of a kernel there is no
    data, whatever the references did."""
    statuses = {row.status for row in rows}
    if FAIL in statuses:
        return EXIT_FAILED
    if not any(row.status == PASS for row in rows if row.config is not None):
        return EXIT_NO_DATA
    return EXIT_PARTIAL if NOT_RUN in statuses else EXIT_OK


def render_table(rows: Sequence[Row]) -> str:
    """A row of it names its kernel: parse_kernel_name_into_config reads it back."""
    table = PrettyTable(["kernel", "max error", "error / tolerance", "repeats equal", "result"])
    table.align["kernel"] = "l"
    for row in rows:
        errors = ("-", "-")
        if row.comparison is not None:
            errors = (f"{row.comparison.max_abs_error:.3e}", f"{row.comparison.relative:.3f}")
        repeats = {None: "-", True: "yes", False: "NO"}[row.repeats_equal]
        table.add_row([row.label, *errors, repeats, row.status])
    return str(table.get_string())


CSV_COLUMNS = (
    "kernel", "symbol", "dtype", "d_head", "seq_len", "batch", "n_heads", "device", "seed",
    "n_runs", "max_abs_error", "row_error", "tolerance", "relative", "repeats_equal", "status",
    "explanation",
)  # fmt: skip


_OF_THE_RUN = ("seq_len", "batch", "n_heads", "device", "seed", "n_runs")
_ERRORS = ("max_abs_error", "row_error", "tolerance", "relative")


def render_csv(rows: Sequence[Row], options: Options) -> str:
    """One line per row with everything that the run depends on. Unknown values are empty."""
    lines = []
    for row in rows:
        lines.append({
            "kernel": row.label,
            "symbol": row.symbol,
            "dtype": row.dtype.name,
            "d_head": row.d_head,
            **{name: getattr(options, name) for name in _OF_THE_RUN},
            **{name: getattr(row.comparison, name, "") for name in _ERRORS},
            "repeats_equal": "" if row.repeats_equal is None else row.repeats_equal,
            "status": row.status,
            "explanation": row.explanation(),
        })  # fmt: skip
    return csv_text.render(lines, CSV_COLUMNS)


def render_header(options: Options) -> str:
    device = "emulator on the CPU" if options.device == "cpu" else options.device
    size = f"batch {options.batch}, heads {options.n_heads}, seq {options.seq_len}"
    size += ", causal" if options.causal else ""
    return (
        f"{device}; {size}; {options.n_runs} run(s) each; seed {options.seed} "
        f"(repeat with --seed {options.seed})"
    )


def render_details(rows: Sequence[Row], skipped: Sequence[Skipped]) -> list[str]:
    """A line for everything that is not as it should be, or not as one may think."""
    lines = [
        f"{row.status}  {row.label}: {row.explanation()}" for row in rows if row.status != PASS
    ]
    lines += [f"note  {row.label}: {row.note}" for row in rows if row.note]
    general = sum(row.symbol != row.config.kernel_name() for row in rows if row.config)
    if general:
        lines.append(f"note  {general} kernel(s) with the general kernel of their configuration")
    reasons = Counter(item.reason for item in skipped)
    lines += [f"skipped  {count} kernel(s): {reason}" for reason, count in reasons.items()]
    return lines


def render_summary(rows: Sequence[Row], skipped: Sequence[Skipped], n_selected: int) -> str:
    kernels = [row for row in rows if row.config is not None]
    references = [row for row in rows if row.config is None]
    text = f"{n_selected} kernel(s) selected: {_count(kernels)}, {len(skipped)} skipped"
    missing = n_selected - len(kernels) - len(skipped)
    if missing:
        text += f", {missing} not reached"
    if references:
        text += f"; {len(references)} reference(s): {_count(references)}"
    return text


def _count(rows: Sequence[Row]) -> str:
    statuses = Counter(row.status for row in rows)
    return f"{statuses[PASS]} passed, {statuses[FAIL]} failed, {statuses[NOT_RUN]} not run"
