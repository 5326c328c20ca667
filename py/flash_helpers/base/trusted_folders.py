"""Folders whose contents are loaded and run: who could have changed them.

Trusted are this user and root, who can change every program on the machine anyway. A folder is as
safe as the folders above it: a user who can write one of those can replace what is below it.
docs/support.md states the rule for users.
"""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_HINT = "choose another with FLASH_ATTENTION_CACHE_DIR"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as the kernel


class UnsafeCacheError(RuntimeError):
    """The cache directory could be written, or replaced, by somebody else."""


def make_private(path: Path) -> None:
    """Makes the folder `path` (absolute) and every level above it that is missing, with mode 0700
    whatever the umask. Raises UnsafeCacheError, before anything is made, if somebody else could
    change it or what lies above it, and OSError if it cannot be made."""
    if os.path.lexists(path):
        check_private(path)
        check_above(path)
        return
    missing = [path, *(above for above in path.parents if not os.path.lexists(above))]
    check_above(missing[-1])
    for folder in reversed(missing):
        _make(folder)
    check_private(path)
    check_above(path)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)  # the umask may have taken more away
    except FileExistsError:  # another process was faster, or somebody else: checked afterwards
        pass
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; {_HINT}", str(folder)) from error


def check_private(path: Path) -> None:
    """Refuses a directory that is a link, foreign-owned, or writable by group or others."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeCacheError(f"cache directory {path} is not a directory (or is a link); {_HINT}")
    if status.st_uid != os.geteuid():
        raise UnsafeCacheError(
            f"cache directory {path} belongs to user {status.st_uid}, not to you ({os.geteuid()}); "
            f"{_HINT}"
        )
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise UnsafeCacheError(
            f"cache directory {path} is writable by others (mode "
            f"{stat.S_IMODE(status.st_mode):o}); run `chmod 700 {path}` or {_HINT}"
        )


def check_above(path: Path) -> None:
    """Refuses `path` (absolute) if somebody else could replace it: each folder and link on the way
    to it must belong to this user or root, and each folder be writable by nobody else, unless its
    sticky bit keeps others' entries from them, as in /tmp."""
    for passed in _way_to(path.parent):
        status = os.lstat(passed)
        if not _is_trusted_owner(status):
            raise UnsafeCacheError(
                f"{passed}, on the way to the cache directory {path}, belongs to user "
                f"{status.st_uid}, not to you ({os.geteuid()}) or root; {_HINT}"
            )
        if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
            continue
        if _others_can_write(status):
            mine = status.st_uid == os.geteuid()
            raise UnsafeCacheError(
                f"{passed}, on the way to the cache directory {path}, is writable by others (mode "
                f"{stat.S_IMODE(status.st_mode):o}), who could replace the cache; "
                + (f"run `chmod go-w {passed}` or {_HINT}" if mine else _HINT)
            )


def find_untrusted(folder: Path) -> Path | None:
    """What in `folder`, itself included, is a link, belongs to somebody else than this user and
    root, or can be written by others; None if nothing is. Raises OSError."""
    entries = [folder]
    while entries:
        entry = entries.pop()
        status = os.lstat(entry)
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            return entry
        if not _is_trusted_owner(status) or _others_can_write(status):
            return entry
        if is_folder:
            entries.extend(entry.iterdir())
    return None


def _way_to(path: Path) -> Iterator[Path]:
    """Every folder and link that the kernel passes on the way to `path`, and `path` itself."""
    current, ahead, links = Path("/"), list(reversed(path.parts[1:])), 0
    yield current
    while ahead:
        part = ahead.pop()
        if part == "..":
            current = current.parent
            continue
        entry = current / part
        yield entry
        if not entry.is_symlink():
            current = entry
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        if target.is_absolute():
            current = Path("/")
        ahead.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))


def _is_trusted_owner(status: os.stat_result) -> bool:
    """The owner of / counts as root: in a user namespace (rootless containers) the machine's root
    has another number."""
    return status.st_uid in (os.geteuid(), 0, os.lstat("/").st_uid)


def _others_can_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_own_group(status.st_gid)


def _is_own_group(gid: int) -> bool:
    """Root's group, or this user's private one: where every user has a group of the same name and
    the umask is 002, a home folder has mode 775, and nobody else is let in. The test is that of
    pam_umask, which sets that umask, and that the group has no other member."""
    if gid == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    is_private = user.pw_gid == gid and group.gr_name == user.pw_name
    return is_private and set(group.gr_mem) <= {user.pw_name}
