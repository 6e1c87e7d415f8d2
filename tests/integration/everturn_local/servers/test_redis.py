"""The embedded Redis-protocol server: start, restart, killed servers, leftovers."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from everturn_local.ports import LOOPBACK
from everturn_local.servers.errors import ServerStartError
from everturn_local.servers.redis import EmbeddedRedis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis", password="secret")
    server.start()
    yield server
    server.stop()


def connect(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def test_data_survives_an_orderly_restart(server: EmbeddedRedis):
    connect(server).set("k", "v")

    server.stop()
    server.start()

    assert connect(server).get("k") == "v"


def test_a_killed_server_comes_back_with_what_it_wrote(server: EmbeddedRedis):
    connect(server).set("k", "v")

    server.kill(signal.SIGKILL)
    server.start()

    assert connect(server).get("k") == "v"


def test_two_servers_never_run_on_one_folder(server: EmbeddedRedis, tmp_path: Path):
    child = server.child
    assert child is not None
    second = EmbeddedRedis(tmp_path / "redis", password="secret")

    second.start()

    assert child.exit_code is not None
    second.stop()


def test_emptying_forgets_everything(server: EmbeddedRedis):
    connect(server).set("k", "v")

    server.empty()

    assert connect(server).dbsize() == 0


def test_without_the_password_nothing_is_answered(server: EmbeddedRedis):
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(host=LOOPBACK, port=server.port, retry=Retry(NoBackoff(), 0)).ping()


def test_the_password_is_in_no_argument_list(server: EmbeddedRedis):
    child = server.child
    assert child is not None

    assert "secret" not in Path(f"/proc/{child.pid}/cmdline").read_text()
    assert (server.folder / "server.conf").stat().st_mode & 0o777 == 0o600


def test_a_taken_port_is_replaced(tmp_path: Path):
    server = EmbeddedRedis(tmp_path / "redis", password="secret")
    with socket.create_server((LOOPBACK, 0)) as other:
        server.folder.mkdir()
        (server.folder / "port").write_text(str(other.getsockname()[1]))

        server.start()

        assert server.port != other.getsockname()[1]
    server.stop()


def test_damaged_data_is_an_error_that_shows_the_log(server: EmbeddedRedis):
    server.stop()
    manifest = next((server.folder / "appendonlydir").glob("*.manifest"))
    manifest.write_text("nonsense\n")

    with pytest.raises(ServerStartError, match="AOF"):
        server.start()
