"""The READMEs quote what the mutation campaigns print; `make mutants` compares the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flash_helpers.build.kernel_ptx import kernel_ptx
from flash_helpers.emulator.door.source_lines import SourceLocation

from .campaign import FAMILIES
from .serve import campaign as serving
from .sm90 import backward_campaign, gluon_mutants
from .sm90.campaign import CONFIGS, REDUNDANT, source_texts
from .sm90.fused_redundant import FUSED_REDUNDANT
from .sm90.mutations import hopper_synchronisation
from .totals import QUOTED, README, SM90, SM90_BACKWARD, SM90_FUSED, Total

ROOT = Path(__file__).parents[2]


def test_the_readmes_quote_the_totals() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("py/**/*.md")]
    quoted: dict[str, list[str]] = {}
    for path in documents:
        if found := re.findall(r"planted \d+ found \d+ redundant \d+", path.read_text()):
            quoted[str(path.relative_to(ROOT))] = sorted(found)
    assert quoted == {name: sorted(map(str, totals)) for name, totals in QUOTED.items()}


def test_the_readme_says_how_many_kernels() -> None:
    (ampere,) = FAMILIES
    n_kernels = len(list(ampere.synchronisation()))
    assert f" of {n_kernels} kernels removed in turn" in (ROOT / README).read_text()


def test_as_many_hopper_mutants_as_recorded() -> None:
    """Without running them."""
    assert SM90.planted == sum(len(hopper_synchronisation(kernel_ptx(c))) for c in CONFIGS)


@pytest.mark.parametrize(
    ("kernels", "recorded"),
    [
        (backward_campaign.KERNELS, SM90_BACKWARD),
        (backward_campaign.FUSED_KERNELS, SM90_FUSED),
    ],
    ids=["two passes", "fused"],
)
def test_as_many_mutants_of_the_backward_pass_as_recorded(
    kernels: Sequence[backward_campaign.Kernel], recorded: Total
) -> None:
    assert recorded.planted == sum(len(backward_campaign.mutants_of(*one)) for one in kernels)


def test_as_many_gluon_mutants_as_recorded() -> None:
    pytest.importorskip("triton", reason="Triton compiles the kernels")
    if (recorded := gluon_mutants.recorded()) is None:
        pytest.skip("recorded with another release of Triton")
    texts = [kernel.compiled().ptx for kernel in gluon_mutants.CAMPAIGN]
    assert recorded.planted == sum(len(hopper_synchronisation(text)) for text in texts)


def test_sources_are_those_of_this_tree() -> None:
    """The cache may hold PTX that a tree compiled which is gone."""
    place = SourceLocation(1, (("/gone/csrc/include/flash/sm90/ring.cuh", 1),))
    header = ROOT / "csrc/include/flash/sm90/ring.cuh"
    assert source_texts(place) == header.read_text().splitlines()[:1]


@pytest.mark.parametrize(
    "redundant",
    [
        REDUNDANT,
        backward_campaign.REDUNDANT,
        FUSED_REDUNDANT,
        serving.REDUNDANT,
    ],
    ids=["fwd", "bwd", "fused", "serving"],
)
def test_reasons_name_lines_that_stand_in_the_sources(redundant: Sequence[Any]) -> None:
    headers = (ROOT / "csrc/include/flash").rglob("*.cuh")
    sources = "\n".join(path.read_text() for path in headers)
    assert [item.line for item in redundant if item.line not in sources] == []
