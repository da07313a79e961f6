"""Writing private files: whole or not at all, readable only for the owner, and not through a link."""

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
        path: of a plain file, or of one that is not there yet.
        text: all of it.
        keep_rights: leave a file of one's own that is there as readable as its owner has made it.

    Raises:
        OSError: it cannot be written, or the path is that of a link, a folder or a device.
    """
    mode = 0o600
    with suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            what = "a link" if stat.S_ISLNK(found.st_mode) else "not a regular file"
            told = (
                f"it is {what}, and nbagent does not write to one. Pass the path of a regular file"
            )
            raise FileExistsError(errno.EEXIST, told, str(path))
        if keep_rights and (os.name == "nt" or found.st_uid == os.geteuid()):
            mode = found.st_mode & 0o777
    try:
        _replace(path, text.encode(), mode)
    except OSError as error:  # names the path that was asked for, and not the draft's
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Write a private file with a random name, and rename it, which follows no link."""
    number, name = tempfile.mkstemp(prefix=f".{path.name[:60]}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            draft.unlink()
        raise
