"""A real clamd of our own."""

import asyncio
import base64
import signal
import stat
from pathlib import Path

import pytest
from clamd_server import find_clamd
from uploads.images import png_of_zeros

from everturn_local.servers.clamd import EICAR, MEMORY_BYTES_WITHOUT_SIGNATURES, EmbeddedClamd
from everturn_local.servers.errors import ServerStartError
from ingress.attachments.antivirus import Clamd, Infected


@pytest.fixture
def server(tmp_path: Path) -> EmbeddedClamd:
    return EmbeddedClamd(tmp_path / "clamd", program=Path(find_clamd()), signatures=None, log=tmp_path / "clamd.log")


async def test_it_finds_the_test_file_and_restarts_after_a_kill(server: EmbeddedClamd):
    server.start()
    try:
        assert (await Clamd(server.url).scan(b"clean")).startswith("clean ClamAV")
        assert server.child is not None
        server.kill(signal.SIGKILL)
        await server.child.wait_exit()
        server.start()

        with pytest.raises(Infected, match=r"Everturn\.Eicar\.Test"):
            await Clamd(server.url).scan(EICAR)
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    finally:
        server.stop()


def test_one_that_can_not_start_is_an_error_with_its_log(tmp_path: Path):
    broken = EmbeddedClamd(
        tmp_path / "clamd", program=Path(find_clamd()), signatures=tmp_path / "absent", log=tmp_path / "clamd.log"
    )

    with pytest.raises(ServerStartError, match="clamd"):
        broken.start()


async def test_a_picture_of_many_pixels_costs_it_no_memory(server: EmbeddedClamd):
    bomb = png_of_zeros(20_000, 20_000)
    mail = b"Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(bomb)
    letter = b"From: a@example.org\r\nTo: b@example.org\r\nMIME-Version: 1.0\r\n" + mail
    server.start()
    try:
        assert server.child is not None
        antivirus, pid = Clamd(server.url), server.child.pid
        await antivirus.scan(b"clean")
        before = peak_bytes(pid)

        await asyncio.gather(antivirus.scan(bomb), antivirus.scan(bomb + b"\0"), antivirus.scan(letter))

        assert peak_bytes(pid) - before < 100_000_000
        assert address_space(pid) == MEMORY_BYTES_WITHOUT_SIGNATURES
    finally:
        server.stop()


def peak_bytes(pid: int) -> int:
    """The largest resident size that the process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def address_space(pid: int) -> int:
    """What the process is limited to, in bytes."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(int(line.split()[3]) for line in lines if line.startswith("Max address space"))
