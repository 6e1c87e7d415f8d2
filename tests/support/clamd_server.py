"""A real clamd with a hand-written signature of the test file that every antivirus knows."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-" + b"STANDARD-" + b"ANTIVIRUS-" + b"TEST-FILE!" + b"$H+H*"
"""Put together here, so that no file of the repository is one that scanners take away."""
SIGNATURE = f"Test.Eicar:0:0:{EICAR.hex()}\n"
START_TIMEOUT_S = 30
STREAM_MAX_BYTES = 12_000_000


class ClamdServer:
    """One clamd in a folder of its own; it can be killed, frozen and started again."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.socket = folder / "clamd.sock"
        self.url = f"unix://{self.socket}"
        self._database = folder / "signatures"
        self._database.mkdir()
        self.sign(SIGNATURE)
        chosen = {
            "LocalSocket": str(self.socket),
            "DatabaseDirectory": str(self._database),
            "Foreground": "yes",
            "StreamMaxLength": str(STREAM_MAX_BYTES),
            "AlertExceedsMax": "yes",
            "AlertEncrypted": "yes",
        } | options
        self._config = folder / "clamd.conf"
        self._config.write_text("".join(f"{name} {value}\n" for name, value in chosen.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def sign(self, signatures: str) -> None:
        """From its next start on these are the signatures."""
        (self._database / "test.ndb").write_text(signatures)

    def start(self) -> "ClamdServer":
        command = [find_clamd(), "-c", str(self._config)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if time.monotonic() > give_up or self._process.poll() is not None:
                raise RuntimeError("clamd did not start")
            time.sleep(0.02)
        return self

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"zPING\0")
                return connection.recv(16) == b"PONG\0"
            except OSError:
                return False

    def peak_bytes(self) -> int:
        """The largest resident size that it ever had."""
        if self._process is None:
            raise RuntimeError("clamd is not running")
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._send(signal.SIGKILL)
            self._process.wait(10)
            self._process = None
        self.socket.unlink(missing_ok=True)

    def _send(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("clamd is not running")
        self._process.send_signal(number)


def find_clamd() -> str:
    """Its path; without one the test fails in CI, and is left out elsewhere."""
    found = shutil.which("clamd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("clamd is needed here: install the package clamav-daemon")
    if found is None:
        pytest.skip("there is no clamd: install the package clamav-daemon")
    return found
