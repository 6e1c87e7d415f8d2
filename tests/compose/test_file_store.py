"""`make up S3=1`: files go to a server that speaks S3, and outlive a restart."""

import re
from pathlib import Path

import pytest
from standins.installation import OwnInstallation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

QUESTION = "Total revenue by region as a bar chart"


def test_files_of_a_turn_are_in_the_store_and_outlive_a_restart(standins: str, repository: Path, tmp_path: Path):
    table = repository / "docs" / "sales.csv"
    with OwnInstallation(tmp_path / "home", standins, s3=True) as installation:
        token = installation.let_guest_in()

        installation.run_cli(token, "chat", QUESTION, "--file", str(table), "--download", str(tmp_path))
        stored = installation.load_readiness()["parts"]["objects"]
        installation.down()
        installation.up()
        (conversation,) = set(re.findall(r"conv_[0-9a-z-]+", installation.run_cli(token, "list")))
        again = tmp_path / "again"
        again.mkdir()
        for file in set(re.findall(r"\bart_[0-9a-z-]+", installation.run_cli(token, "show", conversation, "--json"))):
            installation.run_cli(token, "download", file, "--output", str(again))

    assert stored == {"ok": True, "detail": "S3"}
    assert (again / "sales.png").read_bytes() == (tmp_path / "sales.png").read_bytes()
    assert (again / "sales.png").stat().st_size > 1_000
