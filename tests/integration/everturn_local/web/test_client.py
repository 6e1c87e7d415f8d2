"""Packages, build and checks happen when their sources changed, and at no other time."""

import json
from pathlib import Path

import pytest

from everturn_local.web.client import WebClient
from everturn_local.web.node import try_find_in_wheel
from everturn_local.web.programs import ProgramFailed

BUILD = "require('fs').mkdirSync('dist',{recursive:true});require('fs').copyFileSync('page','dist/index.html')"


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """A client without dependencies, whose build copies a file."""
    scripts = {"build": f'node -e "{BUILD}"'}
    package = {"name": "tiny", "version": "1.0.0", "scripts": scripts}
    (tmp_path / "package.json").write_text(json.dumps(package))
    lock = {"name": "tiny", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": {"": package}}
    (tmp_path / "package-lock.json").write_text(json.dumps(lock))
    (tmp_path / ".npmrc").write_text("")
    (tmp_path / "page").write_text("one")
    (tmp_path / "node_modules").mkdir()
    return tmp_path


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def client(web: Path, reports: list[str]) -> WebClient:
    node = try_find_in_wheel()
    assert node is not None
    return WebClient(web, node, reports.append)


async def test_the_client_is_built_once_for_its_sources(client: WebClient, web: Path, reports: list[str]) -> None:
    dist = await client.save_build()
    assert (dist / "index.html").read_text() == "one"
    count = len(reports)

    await client.save_build()
    assert len(reports) == count

    (web / "page").write_text("two")
    await client.save_build()
    assert (dist / "index.html").read_text() == "two"
    assert len(reports) == count + 1, "its packages are those of before"


async def test_a_deleted_build_is_made_again(client: WebClient) -> None:
    dist = await client.save_build()
    (dist / "index.html").unlink()

    await client.save_build()

    assert (dist / "index.html").exists()


async def test_a_build_that_fails_says_why_and_is_tried_again(client: WebClient, web: Path) -> None:
    (web / "page").unlink()
    with pytest.raises(ProgramFailed, match="ENOENT"):
        await client.save_build()

    (web / "page").write_text("back")
    assert ((await client.save_build()) / "index.html").read_text() == "back"


async def test_checks_report_every_failure(client: WebClient) -> None:
    with pytest.raises(ProgramFailed) as failure:
        await client.check()

    message = str(failure.value)
    assert "eslint" in message
    assert "tsc" in message
    assert message.count("A tool of the web client failed.") == 1
