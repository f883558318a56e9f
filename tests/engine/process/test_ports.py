from __future__ import annotations

import socket

import pytest

from service.engine.process.ports import HOST, PortUnavailable, check_port, free_port


def test_free_port_can_be_listened_on() -> None:
    check_port(free_port())


def test_taken_port_is_named() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortUnavailable, match=f"port {port} is taken"):
            check_port(port)


def test_port_with_lingering_connections_is_not_taken() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((HOST, port))
        accepted, _ = server.accept()
        accepted.close()
    client.close()
    check_port(port)


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(PortUnavailable, match="between 1 and 65535"):
        check_port(port)
