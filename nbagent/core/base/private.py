"""Private files, which are readable only for their owner, and written completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, text: str, *, keep_rights: bool = False) -> None:
    """Write a file as UTF-8, readable only for its owner. An existing file is replaced; a link is not followed.

    Args:
        path: the path of a regular file, or of a file that does not exist yet.
        text: the content of the file.
        keep_rights: True to keep the permissions of an existing file of the same owner.

    Raises:
        OSError: the file cannot be written, or the path is that of a link, a folder or a device.
    """
    mode = 0o600
    with suppress(FileNotFoundError):
        status = path.lstat()
        rule = "nbagent does not write to one. Pass the path of a regular file"
        _check_regular(status, path, rule)
        if keep_rights and (os.name == "nt" or status.st_uid == os.geteuid()):
            mode = status.st_mode & 0o777
    try:
        _replace(path, text.encode(), mode)
    except OSError as error:  # with the requested path, not the path of the draft
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_private(path: Path) -> bytes:
    """Read a file that only its owner can read, in a folder that nobody else can change. A link is not followed.

    Raises:
        OSError: the file cannot be read, is not a regular file, or other users can read it or replace it.
    """
    _check_regular(path.lstat(), path, "nbagent does not read one here. Delete it")
    check_private_folder(path.parent)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        if _is_open_to_others(os.fstat(descriptor), 0o077):
            message = "other users can read or change this file. Delete it"
            raise PermissionError(errno.EPERM, message, str(path))
        return file.read()


def check_private_folder(folder: Path) -> None:
    """Check that no other user can create, replace or delete files in a folder.

    Raises:
        OSError: other users can, or there is no such folder.
    """
    if _is_open_to_others(folder.stat(), 0o022):
        message = "other users can write to this folder. Delete its files, then make it private (chmod 700)"
        raise PermissionError(errno.EPERM, message, str(folder))


def _check_regular(status: os.stat_result, path: Path, rule: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise FileExistsError(errno.EEXIST, f"it is {kind}, and {rule}", str(path))


def _is_open_to_others(status: os.stat_result, rights: int) -> bool:
    """Whether a file or folder has an owner other than this user and root, or gives others one of these rights."""
    if os.name == "nt":  # there, a user's folders have access lists instead
        return False
    return bool(status.st_mode & rights) or status.st_uid not in (0, os.geteuid())


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Write a private file with a random name, then rename the file, which follows no link."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:60]}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
