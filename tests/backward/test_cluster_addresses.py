"""Matrix descriptors of thread blocks of a cluster: the shared addresses of all but the first have
their number in bits that a descriptor has other fields for. The emulator's have no such bits, so
this is asked of the source."""

from __future__ import annotations

import re

import pytest

from flash_helpers.base.paths import csrc_dir

FLASH = csrc_dir() / "include" / "flash"
# What makes descriptors for their kernels.
SHARED = [FLASH / "sm90_bwd" / name for name in ("matmuls.cuh", "own_rows.cuh")]
FILES = [*sorted((FLASH / "sm90_bwd_cluster").glob("*.cuh")), *SHARED]
MADE = re.compile(r"_major\(\s*(\w+(?:::\w+)?)")


def made_of(text: str) -> list[str]:
    return MADE.findall(text)


def test_descriptors_are_made_of_addresses_without_the_thread_block_s_number() -> None:
    found = {path.name: made_of(path.read_text()) for path in FILES}
    assert sum(map(len, found.values())) == 7
    assert {name for names in found.values() for name in names} == {"L::matrix_address"}


@pytest.mark.parametrize("name", ["sm90_bwd_cluster/query_sums.cuh", "sm90_bwd/matmuls.cuh"])
def test_a_plain_address_is_found(name: str) -> None:
    text = (FLASH / name).read_text()
    planted = text.replace("L::matrix_address(ds)", "ds").replace("L::matrix_address(own)", "own")
    assert planted != text and not set(made_of(planted)) <= {"L::matrix_address"}
