"""Loopback ports."""

import os
import socket
from pathlib import Path

import pytest

from everturn_local.ports import LOOPBACK, CannotListen, is_port_free, load_free_port, save_port, try_load_port


def test_a_free_port_lies_below_those_of_outgoing_connections():
    port = load_free_port()

    assert 20_000 <= port < 32_000
    assert is_port_free(port)


def test_a_port_with_a_listener_is_not_free():
    with socket.create_server((LOOPBACK, 0)) as listener:
        assert not is_port_free(listener.getsockname()[1])


@pytest.mark.parametrize("host", ["192.0.2.1", "host.invalid"])
def test_an_address_of_another_machine_is_not_a_port_in_use(host: str):
    with pytest.raises(CannotListen, match=f"{host}:8090: .*Set HOST"):
        is_port_free(8090, host)


def test_a_port_is_given_out_once():
    ports = [load_free_port() for _ in range(100)]

    assert len(set(ports)) == 100


def test_a_remembered_port_that_another_process_of_ours_has_is_replaced(tmp_path: Path):
    free = 32_768 + os.getpid() % 10_000  # the number is this run's own, and nobody is given it
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(f"\0everturn-port-{free}")
        (tmp_path / "port").write_text(str(free))

        assert save_port(tmp_path / "port") != free


def test_a_port_is_remembered(tmp_path: Path):
    assert save_port(tmp_path / "port") == save_port(tmp_path / "port")


def test_a_remembered_port_that_was_taken_is_replaced(tmp_path: Path):
    with socket.create_server((LOOPBACK, 0)) as listener:
        taken = listener.getsockname()[1]
        (tmp_path / "port").write_text(str(taken))

        port = save_port(tmp_path / "port")

    assert port != taken
    assert try_load_port(tmp_path / "port") == port


def test_a_damaged_port_file_is_ignored(tmp_path: Path):
    (tmp_path / "port").write_text("eighty")

    assert try_load_port(tmp_path / "port") is None
    assert try_load_port(tmp_path / "absent") is None
