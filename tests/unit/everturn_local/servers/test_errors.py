"""Errors of servers that don't start."""

from pathlib import Path

from everturn_local.servers.errors import ServerStartError


def test_the_error_carries_the_end_of_the_log(tmp_path: Path):
    log = tmp_path / "x.log"
    log.write_text("early\n" * 1000 + "disk full\n")

    text = str(ServerStartError.from_log("Postgres", log))

    assert text.endswith("disk full")
    assert len(text) < 2_300


def test_a_missing_log_raises_no_second_error(tmp_path: Path):
    assert "Postgres" in str(ServerStartError.from_log("Postgres", tmp_path / "absent.log"))
