"""A real clamd of our own."""

import signal
import stat
from pathlib import Path

import pytest
from clamd_server import find_clamd

from everturn_local.servers.clamd import EICAR, EmbeddedClamd
from everturn_local.servers.errors import ServerStartError
from ingress.attachments.antivirus import Clamd, Infected


@pytest.fixture
def server(tmp_path: Path) -> EmbeddedClamd:
    return EmbeddedClamd(tmp_path / "clamd", program=Path(find_clamd()), signatures=None, log=tmp_path / "clamd.log")


async def test_it_passes_clean_files_finds_the_test_file_and_comes_back_after_a_kill(server: EmbeddedClamd):
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
