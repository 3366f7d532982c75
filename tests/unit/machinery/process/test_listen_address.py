"""Ports are kept over restarts, addresses are written for clients, and invalid addresses are refused."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from atoll.machinery.process.listen_address import PORT_FILE, check_listen_address, serving_names, take_port, url_host


class Ports:
    """Ports of which some are taken; a listener on any port gets 4000."""

    def __init__(self, *taken: int) -> None:
        self.taken, self.requests = taken, list[int]()

    async def listen(self, port: int) -> int:
        self.requests.append(port)
        if port in self.taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        return port or 4000


async def test_who_asks_for_any_port_keeps_the_first_one(tmp_path: Path) -> None:
    ports = Ports()
    assert await take_port(ports.listen, "127.0.0.1", 0, tmp_path) == 4000
    (tmp_path / PORT_FILE).write_text("4711\n")
    assert await take_port(ports.listen, "127.0.0.1", 0, tmp_path) == 4711
    assert ports.requests == [0, 4711]


async def test_a_kept_port_that_is_taken_gives_way_to_another(tmp_path: Path) -> None:
    (tmp_path / PORT_FILE).write_text("4711\n")
    assert await take_port(Ports(4711).listen, "127.0.0.1", 0, tmp_path) == 4000
    assert (tmp_path / PORT_FILE).read_text() == "4000\n"


async def test_a_port_asked_for_that_is_taken_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"127\.0\.0\.1:4711 cannot be listened on .*--secure-port"):
        await take_port(Ports(4711).listen, "127.0.0.1", 4711, tmp_path)
    assert not (tmp_path / PORT_FILE).exists()


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::1", "[fd00::1]")],
)
def test_a_url_names_an_address_that_clients_here_can_use(address: str, host: str) -> None:
    assert url_host(address) == host


def test_a_certificate_names_the_machine_only_where_others_may_come_in() -> None:
    assert serving_names("127.0.0.1", ["a.example", "localhost"]) == ["localhost", "127.0.0.1", "::1", "a.example"]
    assert socket.gethostname() in serving_names("0.0.0.0")


@pytest.mark.parametrize(
    ("address", "port", "said"),
    [
        ("here", 1, "bind-address 'here' is not an IP address"),
        ("::1", -1, "secure-port -1 is not between"),
        ("::1", 65536, "secure-port 65536 is not between"),
    ],
)
def test_what_nobody_can_listen_by_is_refused(address: str, port: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_listen_address(address, port)
