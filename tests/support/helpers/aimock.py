"""aimock, an independent stand-in for the APIs of model providers, as a process. Its replies are in
tests/support/aimock/replies.json, one for each message of a user."""

import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from helpers.node_packages import find_node, install_packages

SOURCE = Path(__file__).parent.parent / "aimock"
STOP_LIMIT_S = 10
_LISTENING = re.compile(r"listening on (http://\S+)")


@contextmanager
def run_aimock(cache: Path) -> Generator[str]:
    """Its base URL. Skips where its package can't be had, and fails in CI."""
    folder = install_packages(SOURCE, cache)
    script = folder / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
    replies = SOURCE / "replies.json"
    with subprocess.Popen(
        [find_node().program, script, "--port", "0", "--fixtures", replies, "--strict", "--validate-on-load"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            yield _read_url(process)
        finally:
            process.terminate()
            process.wait(STOP_LIMIT_S)


def _read_url(process: subprocess.Popen[str]) -> str:
    """The address that it prints when it accepts connections; it prints little, so its output is not read further."""
    assert process.stdout
    printed = ""
    for line in process.stdout:
        printed += line
        if found := _LISTENING.search(line):
            return found[1]
    raise AssertionError(f"aimock did not start: {printed}")
