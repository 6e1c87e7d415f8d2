"""The bundles of the repository: workers accept them without a warning, and what the handbook names exists."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chat_proc.bundle_commands.command import check_folder

ROOT = Path(__file__).resolve().parents[4]
BUNDLES = ROOT / "bundles"


@pytest.mark.parametrize("name", ["analyst", "coder", "desk", "librarian", "canary"])
def test_a_worker_accepts_it_without_a_warning(name: str) -> None:
    checked = check_folder((ROOT / "deploy" if name == "canary" else BUNDLES) / name)

    assert checked.bundle is not None
    assert (checked.bundle.id, checked.problems, checked.warnings) == (name, (), ())


def test_the_settings_and_commands_of_the_handbook_exist() -> None:
    texts = "\n".join(page.read_text() for page in (BUNDLES / "librarian" / "knowledge").rglob("*.md"))
    known = (ROOT / "docs" / "configuration.md").read_text() + (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z-]{1,30}):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert len(settings := set(re.findall(r"`([A-Z][A-Z_]{3,40})`", texts))) > 10
    assert [name for name in settings if name not in known] == []
    assert len(commands := set(re.findall(r"`make ([a-z-]{1,30})`", texts))) > 3
    assert commands <= set(targets)


def ask(*requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of the server of the order desk."""
    lines = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests)
    server = [sys.executable, "-I", str(BUNDLES / "desk" / "server.py")]
    ran = subprocess.run(server, input=lines, capture_output=True, text=True, timeout=20, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_the_server_of_the_desk_answers_good_and_bad_requests() -> None:
    def call(request_id: int, name: str, **arguments: Any) -> dict[str, Any]:
        return {"id": request_id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

    greeted, missing, wrong, nobody, unknown = ask(
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        call(2, "find_order", number=1),
        call(3, "find_order", order=1042),
        call(4, "delete_orders"),
        {"id": 5, "method": "server/discover"},
    )

    assert greeted["result"]["protocolVersion"] == "2025-06-18"
    assert (missing["result"]["isError"], missing["result"]["content"][0]["text"]) == (True, "There is no order 1.")
    assert [answer["error"]["code"] for answer in (wrong, nobody, unknown)] == [-32602, -32602, -32601]
