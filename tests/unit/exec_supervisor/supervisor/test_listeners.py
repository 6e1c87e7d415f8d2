"""A name appears when it can be connected to, with its mode and owner; nothing stays of one that can't be made."""

import os
import socket
import stat
import threading
import time

import pytest

from exec_supervisor.supervisor.listeners import load_peer_uid, open_listener


def connect(path) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(path))
    return peer


def test_it_has_its_mode_and_knows_who_connects(tmp_path):
    with open_listener(tmp_path / "s", mode=0o660, gid=os.getegid()) as listener, connect(tmp_path / "s"):
        accepted, _ = listener.accept()

        with accepted:
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o660
            assert load_peer_uid(accepted) == os.geteuid()


def test_a_name_that_is_there_can_be_connected_to(tmp_path):
    refused: list[OSError] = []

    def connect_when_it_is_there(path) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                connect(path).close()
            except FileNotFoundError:
                continue
            except OSError as error:
                refused.append(error)
            return
        refused.append(TimeoutError(str(path)))

    for number in range(20):
        path = tmp_path / f"s{number}"
        waiting = threading.Thread(target=connect_when_it_is_there, args=(path,))
        waiting.start()
        with open_listener(path, mode=0o600):
            waiting.join()

    assert refused == []


def test_nothing_stays_of_a_socket_that_can_not_be_made(tmp_path):
    (tmp_path / "s").mkdir()

    with pytest.raises(OSError, match="directory"):
        open_listener(tmp_path / "s", mode=0o600)

    assert [path.name for path in tmp_path.iterdir()] == ["s"]
