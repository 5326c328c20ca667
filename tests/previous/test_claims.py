"""The words in which steps.toml says what machine code shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flash_lab.sass.listing import parse_listings
from flash_lab.sass.steps import Program
from tests.sass.test_listing import TEXT

from .claims import check_claim

PTX = (
    "ldmatrix.sync.x4 {%r1};\nmma.sync.aligned %f1;\n@%p1 ldmatrix.sync.x4 {%r2};\nmma.sync %f2;\n"
)
BEFORE = Program(parse_listings(TEXT)[0], 100, PTX)
MORE = TEXT.replace("IMAD.MOV.U32 R2, RZ, RZ, R4", "CS2R R2, SRZ")
AFTER = Program(parse_listings(MORE)[0], 90, PTX.replace("@%p1 ldmatrix", "@%p1 add"))

TRUE: list[dict[str, Any]] = [
    {"count": "CS2R", "where": "kernel", "change": 1},
    {"count": "CS2R", "where": "kernel", "ratio": 2, "value": 2},
    {"count": "move", "where": "kernel", "value": 0},
    {"count": "MUFU", "change": [0, 0], "ratio": [1.0, 1.0]},
    {"count": "MUFU", "per": "HMMA", "value": [2, 2]},
    {"count": "HMMA", "between": ["LDSM", "MUFU.EX2"], "value": 1},
    {"runs": ["LDSM", "HMMA"], "value": 1},
    {"runs": ["ldmatrix", "mma.sync"], "where": "ptx", "change": -1},
    {"count": "add", "where": "ptx", "value": 1},
    {"registers": True, "change": -10},
    {"arch": "sm_90a", "registers": True, "value": 90},
]


@pytest.mark.parametrize("claim", TRUE, ids=str)
def test_true_claims_hold_and_their_opposites_do_not(claim: dict[str, Any]) -> None:
    assert check_claim(claim, BEFORE, AFTER).holds
    for relation in {"change", "ratio", "value"} & set(claim):
        bounds = claim[relation]
        low, high = bounds if isinstance(bounds, list) else (bounds, bounds)
        for wrong in ([high + 1, high + 2], [low - 2, low - 1], low - 1):
            assert not check_claim(claim | {relation: wrong}, BEFORE, AFTER).holds


def test_identical() -> None:
    assert check_claim({"identical": True}, BEFORE, replace(BEFORE, ptx="")).holds
    verdict = check_claim({"identical": True}, BEFORE, AFTER)
    assert not verdict.holds and str(verdict).endswith("DOES NOT HOLD")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"count": "HMMA"}, "needs one of change, ratio, value"),
        ({"count": "HMMA", "least": 3, "value": 3}, "a claim has no least"),
        ({"count": "hmma", "value": 1}, "neither an opcode nor"),
        ({"count": "HMMA", "between": ["LDGSTS", "HMMA"], "value": 1}, "there is no LDGSTS"),
        ({"count": "HMMA", "between": ["HMMA", "LDGSTS"], "value": 1}, "no LDGSTS follows"),
        ({"count": "HMMA", "where": "prologue", "value": 1}, "expected kernel or loop"),
        ({"arch": "sm_80", "count": "HMMA", "value": 1}, "is about sm_80"),
    ],
)
def test_what_is_no_claim_is_an_error(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_claim(claim, BEFORE, AFTER)
