"""The rule tests themselves: each kind of race is expected alone; a rule that is gone is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from flash_helpers.emulator import LaunchOptions, LaunchReport
from flash_helpers.emulator.detector.races import KINDS

from .race_kinds import Kinds, check_kinds
from .sm90 import test_cluster_copies as cluster_copies
from .sm90 import test_cluster_rules as cluster_rules
from .sm90 import test_proxy_rules as proxy_rules
from .sm90 import test_rules as hopper_rules
from .test_race_rules import RULES, launch

# Whose micro-kernels have tests of their own.
ELSEWHERE = {
    "write to a source of wgmma in flight",  # sm90/test_wgmma_rules.py
    "mbarrier used before its initialisation is seen",  # sm90/test_rules.py
}


Launch = Callable[[str, LaunchOptions], LaunchReport]


def _cases() -> list[tuple[Launch, str, Kinds]]:
    hopper = [*hopper_rules.RACES, *proxy_rules.RACES, *proxy_rules.GLOBAL_RACES]
    return [
        *((launch, *case[1:]) for case in RULES),
        *((lambda *given: hopper_rules.launch(*given)[1], *case[1:]) for case in hopper),
        *((lambda *given: cluster_rules.launch(*given)[1], *case[1:])
          for case in cluster_copies.RACES),
    ]  # fmt: skip


def test_each_kind_is_expected_alone() -> None:
    assert ELSEWHERE | {kind for *_, kinds in _cases() for kind in kinds} == set(KINDS)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ELSEWHERE))
def test_a_rule_that_is_gone_is_missed(kind: str) -> None:
    """Without the reports of one kind every rule that expects it fails, and no other."""
    for start, body, kinds in _cases():

        def run(options: LaunchOptions, body: str = body, start: Launch = start) -> LaunchReport:
            report = start(body, options)
            return replace(report, races=tuple(r for r in report.races if r.kind != kind))

        if kind in kinds:
            with pytest.raises(AssertionError, match="order: "):
                check_kinds(run, kinds)
        else:
            check_kinds(run, kinds)
