"""The broker as a process, without an engine: what it says when it serves, how it refuses, how it ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everturn.core.page_server import MAX_CONNECTIONS
from everturn.execution.broker_messages import BROKER_FRAME_BYTES, BrokerRefusal, ListPairs, PairList, StartPair
from everturn.execution.framing import FrameDecoder, FrameStream
from everturn.execution.records import MessageClass, build_message, parse_message

COMMAND = (sys.executable, "-I", "-m", "exec_supervisor", "broker")


def start(folder: Path, **settings: str) -> "subprocess.Popen[str]":
    environment = {
        "PATH": os.environ["PATH"],
        "BROKER_SOCKET": str(folder / "broker.sock"),
        "DOCKER_HOST": f"unix://{folder}/no-engine.sock",
        **settings,
    }
    return subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    process = start(folder, METRICS_LISTEN="127.0.0.1:0", EXECUTION_PROFILES='{"default": {"warm": 1}}')
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def ready(broker: "subprocess.Popen[str]") -> dict[str, Any]:
    assert broker.stdout is not None
    return json.loads(broker.stdout.readline())


async def ask(socket: str, message: MessageClass) -> BrokerRefusal | PairList:
    reader, writer = await asyncio.open_unix_connection(socket)
    stream = FrameStream(reader, writer, FrameDecoder(BROKER_FRAME_BYTES))
    await stream.send(build_message(message))
    frame = await stream.receive()
    writer.close()
    assert isinstance(frame, dict)
    return parse_message(frame, BrokerRefusal, PairList)


async def test_without_an_engine_it_serves_and_refuses_at_once(folder: Path, ready: dict[str, Any]):
    async with asyncio.timeout(15):
        refused = await ask(ready["socket"], StartPair("default", "run_1"))

    assert ready["ready"] is True
    assert ready["socket"] == str(folder / "broker.sock")
    assert isinstance(refused, BrokerRefusal)
    assert refused.code == "engine_down"


def test_the_page_of_numbers_is_served_where_it_says(ready: dict[str, Any]):
    asyncio.run(ask(ready["socket"], ListPairs({})))

    with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=15) as answer:
        page = answer.read().decode()

    assert 'everturn_broker_pairs{state="warm"} 0.0' in page
    assert "everturn_broker_failures_total" in page


def test_connections_that_ask_for_no_page_leave_room_for_those_that_do(ready: dict[str, Any]):
    host, _, port = ready["metrics"].rpartition(":")
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection((host, port), 60)) for _ in range(MAX_CONNECTIONS + 1)]

        refused = lines.pop().recv(1)
        for line in lines:
            line.shutdown(socket.SHUT_WR)
        ends = [line.recv(1) for line in lines]

        with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=15) as answer:
            assert answer.status == 200
    assert refused == b""
    assert ends == [b""] * MAX_CONNECTIONS


def test_a_port_for_the_page_that_is_taken_ends_the_start_with_a_sentence(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(tmp_path, METRICS_LISTEN=f"127.0.0.1:{taken.getsockname()[1]}")
        out, said = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, "")
    assert "Choose another METRICS_LISTEN." in said


def test_a_second_broker_for_the_same_socket_does_not_start(folder: Path, ready: dict[str, Any]):
    second = start(folder)
    _, said = second.communicate(timeout=30)

    assert second.returncode == 2
    assert "Another broker serves this socket" in said


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"EXECUTION_PROFILES": '{"default": {"privileged": true}}'}, "EXECUTION_PROFILES"),
        ({"EXECUTION_PROFILES": '{"default": {"warm": 3}}', "BROKER_MAX_PAIRS": "3"}, "BROKER_MAX_PAIRS"),
        ({"BROKER_TCP": "127.0.0.1:0"}, "BROKER_TLS_DIR"),
        ({"DOCKER_HOST": "ssh://engine"}, "DOCKER_HOST"),
        ({"BROKER_SOCKET_GROUP": "no-such-group"}, "BROKER_SOCKET_GROUP"),
        ({"BROKER_ENGINE": "kubernetes"}, "BROKER_DIAL"),
        ({"BROKER_ENGINE": "kubernetes", "BROKER_DIAL": "192.0.2.7:7444"}, "BROKER_DIAL"),
        ({"BROKER_ENGINE": "kubernetes", "BROKER_DIAL": "127.0.0.1:0"}, "KUBERNETES_ACCOUNT_DIR"),
    ],
)
def test_invalid_settings_are_reported_and_nothing_is_served(tmp_path: Path, settings: dict[str, str], name: str):
    process = start(tmp_path, **settings)
    out, said = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, "")
    assert name in said


def test_sigterm_ends_it_and_takes_its_socket_away(tmp_path: Path):
    process = start(tmp_path)
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode == 0
    assert not (tmp_path / "broker.sock").exists()
