"""What lies above the cache: its levels are made for this user alone, and where somebody else could
replace the cache, it is refused."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from flash_helpers.base import cache
from flash_helpers.base.trusted_folders import find_untrusted

PACKAGES = Path(cache.__file__).parents[1]
STRANGER = 12345


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    with umask(0o022):
        yield


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the cache will lie, two levels below."""
    (tmp_path / "above").mkdir()
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", str(tmp_path / "above" / "x" / "cache"))
    return tmp_path / "above"


@contextmanager
def owned_by(
    monkeypatch: pytest.MonkeyPatch, owner: dict[Path, int], group: dict[Path, int] | None = None
) -> Iterator[None]:
    """Only root can give files away: here they only look as if."""
    true = os.lstat

    def lstat(path: os.PathLike[str] | str) -> os.stat_result:
        values = list(true(path))
        values[stat.ST_UID] = owner.get(Path(path), values[stat.ST_UID])
        values[stat.ST_GID] = (group or {}).get(Path(path), values[stat.ST_GID])
        return os.stat_result(values)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", lstat)
        yield


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o777])
def test_every_level_that_is_missing_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FLASH_ATTENTION_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with umask(mask):
        made = cache.cache_dir("ptx")
    levels = [made, *made.parents[:2]]
    assert [path.name for path in levels] == ["ptx", "flash_attention", ".cache"]
    assert [mode_of(path) for path in levels] == [0o700] * 3


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
@pytest.mark.parametrize("is_made", [False, True])
def test_a_parent_that_others_can_write_is_refused(above: Path, mode: int, is_made: bool) -> None:
    if is_made:
        cache.cache_dir()
    above.chmod(mode)
    os.chown(above, -1, grp.getgrnam("nogroup").gr_gid if os.geteuid() == 0 else -1)
    if mode == 0o775 and os.geteuid() != 0:
        pytest.skip("only root can give the folder to a group of others")
    with pytest.raises(cache.UnsafeCacheError, match=rf"{above}, on the way .* \(mode {mode:o}\)"):
        cache.cache_dir()
    assert is_made or not list(above.iterdir()), "nothing is made in it"
    above.chmod(mode & 0o755)
    assert cache.cache_dir().is_dir()


def test_the_sticky_bit_protects_the_entries_of_a_parent(above: Path) -> None:
    above.chmod(0o1777)  # as /tmp
    assert cache.cache_dir() == above / "x" / "cache"


def test_a_parent_of_root_is_trusted_and_a_stranger_s_is_not(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.cache_dir()
    with owned_by(monkeypatch, {above: 0}):
        cache.cache_dir()
    with (
        owned_by(monkeypatch, {above: STRANGER}),
        pytest.raises(cache.UnsafeCacheError, match=rf"{above}, .*belongs to user {STRANGER}"),
    ):
        cache.cache_dir()
    # A user namespace shows the machine's root as nobody, and him as the owner of all there is.
    with owned_by(monkeypatch, {above: STRANGER, Path("/"): STRANGER}):
        cache.cache_dir()


def test_links_on_the_way_are_followed_and_checked(
    above: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """~/.cache is a link to a larger disk often; what it leads through must be as safe."""
    disk = tmp_path / "disk" / "mine"
    disk.mkdir(parents=True)
    (tmp_path / "disk" / "also").symlink_to("mine")
    (above / "x").symlink_to(tmp_path / "disk" / "also")
    assert (cache.cache_dir() / "..").resolve() == disk
    (tmp_path / "disk").chmod(0o777)
    with pytest.raises(cache.UnsafeCacheError, match=rf"{tmp_path}/disk, on the way"):
        cache.cache_dir()
    (tmp_path / "disk").chmod(0o1777)
    cache.cache_dir()
    with (
        owned_by(monkeypatch, {tmp_path / "disk" / "also": STRANGER}),
        pytest.raises(cache.UnsafeCacheError, match=f"also, .*belongs to user {STRANGER}"),
    ):
        cache.cache_dir()


def test_a_circle_of_links_ends(above: Path) -> None:
    (above / "x").symlink_to(above / "x")
    with pytest.raises(OSError, match="symbolic links"):
        cache.cache_dir()


@pytest.mark.parametrize(
    ("user", "group", "members", "accepted"),
    [
        ("ann", "ann", [], True),
        ("ann", "ann", ["ann"], True),
        ("ann", "ann", ["ann", "bob"], False),
        ("ann", "staff", [], False),  # who else has it as his own group is not to be known
        ("ann", None, [], False),
        (None, "ann", [], False),
    ],
)
def test_a_home_of_mode_775_is_safe_with_a_private_group_alone(
    above: Path, monkeypatch: pytest.MonkeyPatch, user: str | None, group: str | None,
    members: list[str], accepted: bool,
) -> None:  # fmt: skip
    def person(uid: int) -> SimpleNamespace:
        if user is None:
            raise KeyError(uid)
        return SimpleNamespace(pw_name=user, pw_gid=STRANGER)

    def team(gid: int) -> SimpleNamespace:
        if group is None:
            raise KeyError(gid)
        return SimpleNamespace(gr_name=group, gr_mem=members)

    above.chmod(0o775)
    with owned_by(monkeypatch, {}, {above: STRANGER}), monkeypatch.context() as patch:
        patch.setattr(pwd, "getpwuid", person)
        patch.setattr(grp, "getgrgid", team)
        if accepted:
            cache.cache_dir()
        else:
            with pytest.raises(cache.UnsafeCacheError, match=rf"chmod go-w {above}"):
                cache.cache_dir()


def test_a_place_that_cannot_be_made_is_said(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (above / "x").write_text("")
    with pytest.raises(NotADirectoryError, match="choose another with FLASH_ATTENTION_CACHE_DIR"):
        cache.cache_dir()


def test_a_relative_place_is_below_the_current_folder(
    above: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (above / "here").mkdir()
    monkeypatch.chdir(above / "here")
    monkeypatch.setenv("FLASH_ATTENTION_CACHE_DIR", "../there")
    assert cache.cache_dir("ptx").resolve() == above / "there" / "ptx"
    above.chmod(0o777)
    with pytest.raises(cache.UnsafeCacheError, match=rf"{above}, on the way"):
        cache.cache_dir()


def test_many_processes_make_it_at_once(above: Path) -> None:
    code = "from flash_helpers.base.cache import cache_dir; cache_dir('ptx')"
    environ = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    made = [subprocess.Popen([sys.executable, "-c", code], env=environ) for _ in range(4)]
    assert [process.wait() for process in made] == [0] * 4
    assert mode_of(above / "x") == mode_of(above / "x" / "cache" / "ptx") == 0o700


def test_what_somebody_else_can_have_changed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    program = tree / "bin" / "nvcc"
    program.write_text("")
    assert find_untrusted(tree) is None
    with owned_by(monkeypatch, {program: 0, tree: 0}):
        assert find_untrusted(tree) is None
    with owned_by(monkeypatch, {program: STRANGER}):
        assert find_untrusted(tree) == program
    for path in (tree, tree / "bin", program):
        path.chmod(0o1757)  # the sticky bit does not keep others from adding files
        assert find_untrusted(tree) == path
        path.chmod(0o755)
    (tree / "include").symlink_to("/usr/include")
    assert find_untrusted(tree) == tree / "include"
