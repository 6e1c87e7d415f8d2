"""One rclone and one moto for all tests of a session."""

from collections.abc import Iterator

import pytest
from helpers.s3 import KEYS, S3Server, run_moto, run_rclone


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_rclone(tmp_path_factory.mktemp("rclone") / "root") as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_moto(tmp_path_factory.mktemp("moto") / "root") as server:
        yield server


@pytest.fixture
def s3_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys where the SDK looks for them."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
