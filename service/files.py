"""Files: texts that somebody else names are read within bounds, and what is written is there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 64 * 2**20


def read_text(path: Path, *, pipes: bool = False) -> str:
    """A file's text, in UTF-8 with or without a byte order mark.

    Args:
        pipes: whether it may come out of one, as in `-f <(...)`. Whoever reads one waits for whoever writes it.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger than `MOST_BYTES`.
        UnicodeDecodeError: it is not UTF-8.
    """
    mode = path.stat().st_mode
    # To open a folder says best what is wrong with it.
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and not stat.S_ISBLK(mode))):
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB")
    return content.decode("utf-8-sig")


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that whoever reads it finds the old text or the new one, never a part.

    A symbolic link stays, and what it points to is written.

    Raises:
        OSError: it cannot be written, or is there and no regular file; what is there is then untouched.
    """
    path = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
