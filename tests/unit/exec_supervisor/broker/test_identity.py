"""Who holds a socket's identity: one process at a time, under the same id after another."""

from pathlib import Path

import pytest

from exec_supervisor.broker.identity import SocketTaken, hold_identity


def test_the_next_broker_of_a_socket_has_the_same_id(tmp_path: Path):
    with hold_identity(tmp_path / "broker.sock") as first:
        pass
    with hold_identity(tmp_path / "broker.sock") as second:
        pass

    assert first == second
    assert len(first) == 16


def test_brokers_of_different_sockets_have_different_ids(tmp_path: Path):
    with hold_identity(tmp_path / "a.sock") as first, hold_identity(tmp_path / "b.sock") as second:
        assert first != second


def test_two_brokers_cannot_hold_one_socket(tmp_path: Path):
    with (
        hold_identity(tmp_path / "broker.sock"),
        pytest.raises(SocketTaken),
        hold_identity(tmp_path / "broker.sock"),
    ):
        pass


def test_a_file_with_something_else_in_it_gets_a_new_id(tmp_path: Path):
    (tmp_path / "broker.sock.lock").write_text("../../everything")

    with hold_identity(tmp_path / "broker.sock") as found:
        pass

    assert (tmp_path / "broker.sock.lock").read_text() == found


def test_a_symlink_in_place_of_the_lock_is_not_followed(tmp_path: Path):
    (tmp_path / "broker.sock.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic"), hold_identity(tmp_path / "broker.sock"):
        pass

    assert not (tmp_path / "elsewhere").exists()
