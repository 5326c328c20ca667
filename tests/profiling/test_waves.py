"""Waves of blocks: the arithmetic, at its edges, and what is said about it."""

from __future__ import annotations

import pytest

from flash_lab.waves.plan import plan


@pytest.mark.parametrize(
    ("blocks", "blocks_per_sm", "waves", "tail", "efficiency", "shared"),
    [
        (1, 1, 1, 1, 1 / 132, 1 / 132),
        (132, 1, 1, 132, 1.0, 1.0),
        (133, 1, 2, 1, 133 / 264, 133 / 264),
        (264, 1, 2, 132, 1.0, 1.0),
        (132, 2, 1, 132, 0.5, 1.0),  # one block on each SM has it busy, or half busy
        (265, 2, 2, 1, 265 / 528, 265 / 396),
        (528, 4, 1, 528, 1.0, 1.0),
    ],
)
def test_the_arithmetic(
    blocks: int, blocks_per_sm: int, waves: int, tail: int, efficiency: float, shared: float
) -> None:
    found = plan(blocks, 132, blocks_per_sm)
    assert (found.waves, found.tail) == (waves, tail)
    assert found.efficiency == pytest.approx(efficiency)
    assert found.shared_efficiency == pytest.approx(shared)


def test_efficiencies_are_between_0_and_1_and_in_order() -> None:
    for blocks_per_sm in (1, 2, 3, 8):
        for blocks in range(1, 700):
            found = plan(blocks, 132, blocks_per_sm)
            assert 0 < found.efficiency <= found.shared_efficiency <= 1
            assert (found.waves - 1) * found.slots + found.tail == blocks
            assert 1 <= found.tail <= found.slots


def test_the_rule_of_four_blocks_for_every_sm() -> None:
    assert not plan(527, 132).follows_rule and plan(528, 132).follows_rule
    assert "528 blocks or more" in plan(100, 132).describe()
    assert "rule" not in plan(528, 132).describe()


def test_the_warning() -> None:
    assert plan(132, 132).warning() == plan(1320, 132).warning() == ""
    assert "leaves 131 of 132 SMs idle: 50%" in plan(133, 132).warning()
    assert "132 or 264 blocks would fill it" in plan(133, 132).warning()
    assert "132 blocks would give each SM one" in plan(12, 132).warning()
    # Ten waves and a block lose less than a tenth: no warning.
    assert not plan(1321, 132).wastes_its_last_wave


@pytest.mark.parametrize("numbers", [(0, 132, 1), (1, 0, 1), (1, 132, 0), (-5, 132, 1)])
def test_nonsense_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="it must be at least 1"):
        plan(*numbers)
