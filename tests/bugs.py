"""Bugs in the product, and the tests that must fail with each (tests/mutation.py plants them).

Add a line where a test was found that could not fail, or where a check decides about others.
"""

from __future__ import annotations

from .backward import bugs as backward
from .mutation import Bug
from .serving import bugs as serving

_REFERENCE, _TOLERANCE = (
    f"py/flash_helpers/check/{name}.py" for name in ("reference", "tolerance")
)
_STORE = "py/flash_lab/bench/store.py"
_REFERENCE_TEST, _TOLERANCE_TEST = (
    f"tests/reference/test_{name}.py" for name in ("reference", "tolerance")
)
_STORE_TEST, _EMULATOR = "tests/bench/test_store.py", "tests/emulator"
_SM90 = f"{_EMULATOR}/sm90"

REFERENCE = (
    Bug("no mask but for equal lengths", _REFERENCE,
        "            if causal:\n                scores", "            if causal and seqlen_q == "
        "k.shape[1]:\n                scores",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",
         f"{_REFERENCE_TEST}::test_causal_means")),
    Bug("the diagonal one key too far", _REFERENCE,
        "key > query + (seqlen_k - seqlen_q)", "key > query + (seqlen_k - seqlen_q) + 1",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",
         f"{_REFERENCE_TEST}::test_causal_means")),
    Bug("the diagonal of the first key", _REFERENCE,
        "key > query + (seqlen_k - seqlen_q)", "key > query",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",)),
    Bug("blind rows by their place in the chunk", _REFERENCE,
        "seqlen_q - k.shape[1] - rows.start)", "seqlen_q - k.shape[1])",
        (f"{_REFERENCE_TEST}::test_causal_against_the_definition",)),
    Bug("the log-sum-exp 0.05 % off", _REFERENCE,
        "torch.logsumexp(scores, dim=-1)", "torch.logsumexp(scores, dim=-1) * 1.0005",
        (f"{_REFERENCE_TEST}::test_against_the_definition",)),
    Bug("query heads take KV heads in turn", _REFERENCE,
        "k[b, :, head // group].to(dtype).T", "k[b, :, head % k.shape[2]].to(dtype).T",
        (f"{_REFERENCE_TEST}::test_against_the_definition",)),
)  # fmt: skip
TOLERANCE = (
    Bug("every comparison passes", _TOLERANCE, "return self.n_bad_rows == 0", "return True",
        (f"{_TOLERANCE_TEST}::test_every_planted_bug_is_found",
         f"{_TOLERANCE_TEST}::test_an_unwritten_output_does_not_pass")),
    Bug("half as much again is tolerated", _TOLERANCE,
        "\nROW_FACTOR = 1.25", "\nROW_FACTOR = 1.875",
        (f"{_TOLERANCE_TEST}::test_every_planted_bug_is_found",)),
    Bug("all bits are equal", _TOLERANCE,
        "torch.equal(a.view(bits), b.view(bits))", "a.shape == b.shape",
        (f"{_TOLERANCE_TEST}::test_bitwise_equality_looks_at_the_bits",)),
    Bug("NaN passes", _TOLERANCE,
        'error.masked_fill_(~error.isfinite(), float("inf"))',
        "error.masked_fill_(~error.isfinite(), 0.0)",
        (f"{_TOLERANCE_TEST}::test_nan_never_passes_wherever_it_stands",
         f"{_TOLERANCE_TEST}::test_an_unwritten_output_does_not_pass")),
)  # fmt: skip
STORE = (
    Bug("repeated rows are finished twice", _STORE,
        "latest[row.identity] = row", "latest[row.identity + (str(len(latest)),)] = row",
        (f"{_STORE_TEST}::test_a_repeated_measurement_is_finished_once",)),
    Bug("a repeated row keeps its old place", _STORE,
        "latest.pop(row.identity, None)  # a", "pass  # a",
        (f"{_STORE_TEST}::test_a_repeated_measurement_is_finished_once",)),
    Bug("rows are dropped", _STORE, "rows.append(decode(line))", "decode(line)",
        (f"{_STORE_TEST}::test_rows_come_back_as_they_were_written",)),
    Bug("bad lines are dropped", _STORE,
        "bad.append(BadLine(number, str(error), line))", "del error",
        (f"{_STORE_TEST}::test_damage_costs_its_own_line_only",)),
    Bug("rows are not forced to disk", _STORE,
        "            os.fsync(self._descriptor)\n", "",
        (f"{_STORE_TEST}::test_each_append_is_forced_to_disk",)),
    Bug("nobody locks", _STORE, "if not try_lock(lock):", "if False:",
        (f"{_STORE_TEST}::test_two_sweeps_cannot_write_one_store",)),
)  # fmt: skip
EMULATOR = (
    Bug("one kind of race goes by another's name", "py/flash_helpers/emulator/detector/races.py",
        '    "read-after-write",\n    "write-after-read",\n',
        '    "write-after-read",\n    "read-after-write",\n',
        (f"{_EMULATOR}/test_race_rules.py::test_a_rule", f"{_SM90}/test_rules.py::test_a_race")),
    Bug("every schedule is the first", "py/flash_helpers/emulator/door/schedules.py",
        'replace(base, lane_order="reverse")', 'replace(base, lane_order="forward")',
        (f"{_EMULATOR}/test_race_rules.py::test_a_rule",)),
    Bug("no answer is recorded", f"{_EMULATOR}/conformance/suite.py",
        "if fingerprint != kernels.fingerprint(case):", "if fingerprint is not None:",
        (f"{_EMULATOR}/test_conformance.py::test_as_on_the_h200",
         f"{_EMULATOR}/test_conformance.py::test_the_forms_of_the_built_kernels_have_recorded_answers",
         f"{_SM90}/test_sm90_conformance.py::test_as_on_the_h200",
         f"{_SM90}/test_sm90_conformance.py::test_all_else_is_answered",
         f"{_SM90}/test_sm90_conformance.py::"
         "test_the_forms_of_the_built_kernels_have_recorded_answers")),
    Bug("more work than needed is right", f"{_EMULATOR}/work.py",
        "if got != wanted", "if got < wanted",
        (f"{_SM90}/test_hopper_attention.py::"
         "test_scores_multiplied_again_where_a_correction_would_do",)),
    Bug("more work than needed is right in Gluon", f"{_SM90}/gluon_attention.py",
        "seen = first + config.BLOCK_M +", "seen = first + 64 +",
        (f"{_SM90}/test_gluon_attention.py::test_right_under_every_schedule",)),
    Bug("no race detector in the campaign", f"{_SM90}/campaign.py",
        "OPTIONS = LaunchOptions(", 'OPTIONS = LaunchOptions(races="off", ',
        (f"{_SM90}/test_hopper_attention.py::test_a_few_mutants",)),
    Bug("survivors count as found", f"{_EMULATOR}/planting.py",
        "if by and not (by_reports and by == WRONG):", "if True:",
        (f"{_EMULATOR}/test_planting.py::test_what_is_not_found_survives",)),
    Bug("any total will do", f"{_EMULATOR}/planting.py",
        "if recorded is not None and total != recorded:", "if False:",
        (f"{_EMULATOR}/test_planting.py::test_another_total_than_recorded_fails",)),
    Bug("the README's total is an old one", "py/flash_helpers/emulator/sm90/README.md",
        "planted 352 found 274", "planted 352 found 273",
        (f"{_EMULATOR}/test_totals.py::test_the_readmes_quote_the_totals",)),
)  # fmt: skip

BUGS = (*REFERENCE, *TOLERANCE, *STORE, *EMULATOR, *backward.BUGS, *serving.BUGS)
