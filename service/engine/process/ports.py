"""The TCP port that an engine listens on."""

from __future__ import annotations

import errno
import os
import socket

from service.errors import LastpageError

HOST = "127.0.0.1"


class PortUnavailable(LastpageError):
    """The requested port cannot be listened on; the message says why."""


def free_port() -> int:
    """A port that nothing listens on, chosen by the operating system."""
    with _listener(0) as listener:
        port: int = listener.getsockname()[1]
        return port


def check_port(port: int) -> None:
    """Make sure that an engine can listen on this port.

    Raises:
        PortUnavailable: it is taken, out of range, or needs more rights.
    """
    if not 1 <= port <= 65535:
        raise PortUnavailable(f"port {port} is not between 1 and 65535")
    try:
        _listener(port).close()
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "is taken by another process" if taken else f"cannot be used: {os.strerror(error.errno or 0)}"
        raise PortUnavailable(f"port {port} {reason}; leave it out to have a free one chosen") from error


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # As SGLang's HTTP server does: connections of an earlier server that linger do not make a port taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener
