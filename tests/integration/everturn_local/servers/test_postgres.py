"""The embedded Postgres: start, restart, killed servers, leftovers."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn_local.privileges import SERVER_UID, is_root
from everturn_local.processes import try_record
from everturn_local.servers.errors import ServerStartError
from everturn_local.servers.postgres import EmbeddedPostgres, SqlError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "postgres", password="secret", durable=False)
    server.start()
    yield server
    server.stop()


def test_data_survives_a_restart_and_the_port_stays(server: EmbeddedPostgres):
    server.run_sql("CREATE TABLE t AS SELECT 7 AS n")
    port = server.port

    server.stop()
    server.start()

    assert server.run_sql("SELECT n FROM t") == "7"
    assert server.port == port


def test_a_killed_server_is_repaired_by_the_next_start(server: EmbeddedPostgres):
    server.run_sql("CREATE TABLE t AS SELECT 7 AS n")

    server.kill(signal.SIGKILL)
    server.start()

    assert server.run_sql("SELECT n FROM t") == "7"


def test_a_server_that_somebody_left_running_is_ended_first(server: EmbeddedPostgres, tmp_path: Path):
    child = server.child
    assert child is not None
    second = EmbeddedPostgres(tmp_path / "postgres", password="secret", durable=False)

    second.start()

    assert child.exit_code is not None
    assert second.run_sql("SELECT 1") == "1"
    second.stop()


def test_a_pid_file_that_names_a_stranger_does_not_hurt_the_stranger(server: EmbeddedPostgres):
    server.stop()
    (server.data / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data}\n")

    server.start()

    assert server.run_sql("SELECT 1") == "1"


def test_a_first_start_that_was_cut_off_is_done_again(tmp_path: Path):
    folder = tmp_path / "postgres"
    (folder / "data.new" / "base").mkdir(parents=True)
    server = EmbeddedPostgres(folder, password="secret", durable=False)

    server.start()

    assert server.run_sql("SELECT 1") == "1"
    server.stop()


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path):
    script = textwrap.dedent(
        f"""
        import os, signal
        from pathlib import Path
        from everturn_local.servers.postgres import EmbeddedPostgres
        server = EmbeddedPostgres(Path({str(tmp_path / "postgres")!r}), password="secret", durable=False)
        server.start()
        print(server.child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    starter = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    pid = int(starter.stdout)

    descriptor = _try_open(pid)

    assert descriptor is None or _wait_ended(descriptor)
    assert try_record(pid) is None


def _try_open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _wait_ended(descriptor: int) -> bool:
    readable, _, _ = select.select([descriptor], [], [], 10)
    os.close(descriptor)
    return bool(readable)


def test_only_its_user_may_enter_and_it_never_runs_as_root(server: EmbeddedPostgres):
    child = server.child
    assert child is not None

    assert server.folder.stat().st_mode & 0o777 == 0o700
    assert server.data.stat().st_mode & 0o077 == 0
    owner = Path(f"/proc/{child.pid}").stat().st_uid
    assert owner == (SERVER_UID if is_root() else os.geteuid())


def test_a_wrong_password_is_refused(server: EmbeddedPostgres, tmp_path: Path):
    stranger = EmbeddedPostgres(tmp_path / "postgres", password="wrong")
    stranger.attach()

    with pytest.raises(SqlError, match="password authentication failed"):
        stranger.run_sql("SELECT 1")


def test_the_password_is_in_no_argument_list(server: EmbeddedPostgres):
    child = server.child
    assert child is not None

    assert "secret" not in Path(f"/proc/{child.pid}/cmdline").read_text()


def test_damaged_data_is_an_error_that_shows_the_log(server: EmbeddedPostgres):
    server.stop()
    (server.data / "global" / "pg_control").unlink()

    with pytest.raises(ServerStartError, match="pg_control"):
        server.start()


def test_attaching_where_nothing_ever_ran_is_an_error(tmp_path: Path):
    with pytest.raises(ServerStartError):
        EmbeddedPostgres(tmp_path / "postgres", password="x").attach()
