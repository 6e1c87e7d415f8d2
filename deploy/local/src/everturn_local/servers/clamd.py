"""This machine's antivirus clamd on a socket of our own: its detection, its signatures, and its process."""

import os
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everturn_local.privileges import SERVER_UID, build_server_prefix, is_root
from everturn_local.processes import Child, StopStep, remove_record, run_leftover_cleanup, save_record
from everturn_local.servers.errors import ServerStartError
from everturn_local.servers.waiting import Waited, wait_for_server

FRESHCLAM = Path("/var/lib/clamav")
"""Where freshclam stores signatures, as packages configure it."""
PROGRAMS = "/usr/sbin:/usr/local/sbin"
"""Folders in addition to PATH: clamd is often only on root's PATH."""
EICAR = b"X5O!P%@AP[4\\PZX54(P^)7CC)7}$" + b"EICAR-" + b"STANDARD-" + b"ANTIVIRUS-" + b"TEST-FILE!" + b"$H+H*"
"""The EICAR test file of all scanners; in pieces, so that no scanner removes this module."""
READY_LIMIT_S = 10.0
"""With freshclam's signatures clamd can take longer. Then startup continues, and uploads are rejected until it
answers."""
ANSWER_LIMIT_S = 2.0
POLL_S = 0.02
STOP_STEPS: Sequence[StopStep] = ((signal.SIGTERM, 5.0),)
SCAN_OPTIONS = {
    "StreamMaxLength": "26M",
    "AlertExceedsMax": "yes",
    "AlertEncrypted": "yes",
    "ScanImage": "no",
    "ScanImageFuzzyHash": "no",
    "MaxThreads": "4",
    "MaxScanTime": "15000",
    "MaxScanSize": "400M",
    "MaxFileSize": "120M",
}
"""The same as in `deploy/clamav/clamd.conf`; `docs/how-to/scan-uploads.md` says why."""
OPTIONS = {"Foreground": "yes", "LocalSocketMode": "600"} | SCAN_OPTIONS
MEMORY_BYTES = 4 * 2**30
"""Limit of the address space, the same as the memory of the container in `deploy/docker-compose.yml`: freshclam's
signatures need more than 1 GiB, and twice that while newer ones are loaded."""
MEMORY_BYTES_WITHOUT_SIGNATURES = 2**30


@dataclass(frozen=True, slots=True)
class ClamdChoice:
    """The `program` to start, None for none. `signatures` is its signature folder, None for only the test file's."""

    program: Path | None
    signatures: Path | None
    why: str


def choose_clamd(
    environment: Mapping[str, str], *, signatures: Path = FRESHCLAM, programs: str = PROGRAMS
) -> ClamdChoice:
    """Choose a clamd of our own if the machine has the program and the operator configures no other."""
    if environment.get("CLAMD_URL"):
        return ClamdChoice(None, None, "CLAMD_URL is set")
    if environment.get("APP_AV_SCAN") == "0":
        return ClamdChoice(None, None, "APP_AV_SCAN=0: uploads are accepted unscanned")
    found = shutil.which("clamd", path=f"{environment.get('PATH', os.defpath)}:{programs}")
    if found is None:
        return ClamdChoice(None, None, f"install clamav-daemon; until then uploads are {_judge_unscanned(environment)}")
    if any(os.access(file, os.R_OK) for file in signatures.glob("*.c[lv]d")):
        return ClamdChoice(Path(found), signatures, f"signatures of {signatures}")
    return ClamdChoice(Path(found), None, "it detects only the EICAR test file: run freshclam for real signatures")


def _judge_unscanned(environment: Mapping[str, str]) -> str:
    """How the ingress treats uploads without clamd."""
    development = environment.get("EVERTURN_MODE", "development") == "development"
    return "accepted unscanned" if development and environment.get("APP_AV_SCAN") != "1" else "rejected"


def find_socket(folder: Path) -> Path:
    """The socket of the clamd with this folder, while it runs."""
    return folder / "run" / "clamd.sock"


class EmbeddedClamd:
    """One clamd with its socket, configuration and temporary files in `folder`. Stop and start can alternate."""

    def __init__(self, folder: Path, *, program: Path, signatures: Path | None, log: Path) -> None:
        self.folder = folder.absolute()
        self._program = program
        self._signatures = signatures
        self._log = log
        self._child: Child | None = None

    @property
    def child(self) -> Child | None:
        return self._child

    @property
    def socket(self) -> Path:
        return find_socket(self.folder)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def _records(self) -> Path:
        return self.folder / "processes"

    def start(self) -> None:
        """Start, and wait a little until it answers. Raises ServerStartError with the end of its log."""
        self._records.mkdir(parents=True, exist_ok=True)
        run_leftover_cleanup(self._records)
        configuration = self._save_configuration()
        prefix = build_server_prefix(death_signal="TERM", reaches=[self._program, configuration, self.socket])
        argv = [*prefix, *self._build_limits(), str(self._program), "-c", str(configuration)]
        self._child = Child(argv, env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"}, log=self._log)
        save_record(self._records, "server", self._child.pid)
        waited = wait_for_server(self._child, self._answers, limit_s=READY_LIMIT_S, poll_s=POLL_S)
        if waited is Waited.EXITED:
            raise ServerStartError.from_log("clamd", self._log)

    def _build_limits(self) -> list[str]:
        """A memory limit, so that a file that makes clamd grow ends only clamd; its supervisor restarts it.

        prlimit is in the same package as setpriv, which runs servers as another user; without it there is no limit.
        """
        prlimit = shutil.which("prlimit")
        size = MEMORY_BYTES if self._signatures else MEMORY_BYTES_WITHOUT_SIGNATURES
        return [prlimit, f"--as={size}", "--"] if prlimit else []

    def stop(self) -> None:
        """Stop it. No error when it isn't running."""
        if self._child is not None:
            self._child.stop(STOP_STEPS)
            self._child = None
            remove_record(self._records, "server")

    def kill(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal without waiting: for fault tests."""
        if self._child is not None:
            self._child.send(sig)

    def _save_configuration(self) -> Path:
        for name in ("run", "tmp", "signatures"):
            self._give(self.folder / name)
        own = self.folder / "signatures"
        (own / "eicar.ndb").write_text(f"Everturn.Eicar.Test:0:0:{EICAR.hex()}\n")
        chosen = OPTIONS | {
            "LocalSocket": str(self.socket),
            "TemporaryDirectory": str(self.folder / "tmp"),
            "DatabaseDirectory": str(self._signatures or own),
        }
        file = self.folder / "clamd.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in chosen.items()))
        return file

    def _give(self, folder: Path) -> None:
        """Make clamd own its folders: it processes untrusted files, and not as root."""
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_root():
            os.chown(folder, SERVER_UID, SERVER_UID)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_LIMIT_S)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"zPING\0")
                return connection.recv(16) == b"PONG\0"
            except OSError:
                return False
