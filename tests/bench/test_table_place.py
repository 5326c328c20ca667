"""Where a tuning table may be written: never through what somebody put under its names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flash_attention.tuning_table import update_table
from flash_helpers.base.plain_file import UnsafeFileError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


def test_the_lock_is_not_written_through_a_link(table: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("the only copy\n")
    (tmp_path / "t.json.lock").symlink_to(victim)
    with pytest.raises(UnsafeFileError, match=r"symbolic link.*t\.json\.lock"):
        update_table(table, [])
    assert victim.read_text() == "the only copy\n" and not table.exists()


@pytest.mark.timeout(60)  # reading a FIFO waits for its writer
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_fifo_or_a_folder_is_no_table(table: Path, tmp_path: Path, through_a_link: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, kind in (("fifo", "a FIFO"), ("folder", "a directory")):
        target = tmp_path / name
        if through_a_link:
            table.unlink(missing_ok=True)
            table.symlink_to(target)
            target = table
        with pytest.raises(UnsafeFileError, match=kind):
            update_table(target, [])
    assert (tmp_path / "fifo").is_fifo() and (tmp_path / "folder").is_dir()
