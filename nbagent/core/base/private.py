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
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            message = (
                f"it is {kind}, and nbagent does not write to one. Pass the path of a regular file"
            )
            raise FileExistsError(errno.EEXIST, message, str(path))
        if keep_rights and (os.name == "nt" or status.st_uid == os.geteuid()):
            mode = status.st_mode & 0o777
    try:
        _replace(path, text.encode(), mode)
    except OSError as error:  # with the requested path, not the path of the draft
        raise OSError(error.errno, error.strerror, str(path)) from error


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
