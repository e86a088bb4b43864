"""Ports: a free one, a given one, one in use, one that does not exist."""

import socket

import pytest

from ostinato.loopback import listen
from ostinato.records import ConflictError


def test_a_free_port_takes_connections() -> None:
    """On the loopback interface, before anything accepts them."""
    with listen(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with socket.create_connection((host, port), timeout=60):
            pass


def test_a_port_can_be_taken_again_at_once() -> None:
    """A server that was ended, with a client still connected, comes back on its port."""
    with listen(0) as first:
        port = first.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            first.accept()[0].close()
    with listen(port) as second:
        assert second.getsockname()[1] == port


def test_a_port_in_use_is_named() -> None:
    """The error says which port, why, and how to take a free one."""
    with listen(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=rf"Port {port} .*in use.*--port 0"):
            listen(port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_named(port: int) -> None:
    """And nothing is left open."""
    with pytest.raises(ConflictError, match=rf"Port {port} .*0 to 65535"):
        listen(port)
