"""Taking a port."""

import socket

from ostinato.records import ConflictError

_WAITING = 1024
"""Connections that the kernel holds until they are accepted."""


def listen(port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1:`port`; 0 takes a free one. Raises `ConflictError` where it cannot."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(_WAITING)
    except (OSError, OverflowError) as error:
        listener.close()
        words = error.strerror if isinstance(error, OSError) else "it must lie in 0 to 65535"
        raise ConflictError(
            f"Port {port} on 127.0.0.1 cannot be used: {words}.", hint="Take a free one: --port 0"
        ) from None
    return listener
