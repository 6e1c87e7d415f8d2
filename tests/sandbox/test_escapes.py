"""The escape battery on the real sandbox: every way out is tried from inside, each must be denied."""

import asyncio
import json
import os
import platform
import socket
from pathlib import Path

import pytest

from everturn.wire.execution import RunLimits

PROBES = Path(__file__).with_name("escape_probes.py")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the probes use the system call numbers of x86-64")
async def test_every_way_out_is_denied(run, repository, monkeypatch):
    monkeypatch.setenv("EVERTURN_TEST_SECRET", "only-outside-4711")
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0everturn-escape-test")
        abstract.listen()
        known = [str(repository), "only-outside-4711", "everturn-escape-test"]
        head = f"import sys\nsys.argv = ['program', *{known!r}]\n"

        result = await run(head + PROBES.read_text(), timeout_s=30, limits=RunLimits(tail_chars=20000))

    assert result.error is None, result.report_text
    answers = json.loads(result.user_out_tail)
    assert len(answers) > 50
    assert not [name for name, denial in answers.items() if denial is None]
    assert "not permitted" in answers["io_uring"]


async def test_outside_the_program_really_is_uid_1001(run, sandbox):
    running = asyncio.create_task(run("import time; print('on', flush=True); time.sleep(1.5)  # uid-probe-815"))
    await asyncio.sleep(0.8)

    uids = {uid for pid, uid in load_uids().items() if "-m executor" in load_command(pid)}
    await running

    expected = 1001 if os.geteuid() == 0 else os.geteuid()
    assert uids == {expected}
    assert sandbox.posture.outer_uid == expected


def load_uids() -> dict[int, int]:
    uids: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            uids[int(entry.name)] = int(status.split("Uid:")[1].split()[0])
    return uids


def load_command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


async def test_links_in_the_output_folder_do_not_bring_other_files_out(run):
    program = """
import os
os.symlink("/etc/ld.so.cache", OUTPUT_DIR + "/link")
os.symlink("/usr/lib", OUTPUT_DIR + "/folder")
os.mkfifo(OUTPUT_DIR + "/pipe")
os.mkdir(OUTPUT_DIR + "/dir")
open("secret", "w").write("inside")
try: os.link("/usr/lib/os-release", OUTPUT_DIR + "/hard")
except OSError: pass
open(OUTPUT_DIR + "/good", "w").write("good")
"""
    outputs = ("link", "folder/os-release", "pipe", "dir", "hard", "good")

    result = await run(program, outputs=outputs)

    assert [artifact.filepath for artifact in result.artifacts] == ["good"]
    assert result.error.code == "output_rejected"
    for expected in ("link (symlink)", "folder/os-release (symlink)", "pipe (not_regular)", "dir (not_regular)"):
        assert expected in result.error.message


async def test_a_program_that_kills_the_runner_gets_no_files_out_and_no_ok(run):
    program = "import os\nopen(OUTPUT_DIR + '/a', 'w').write('a')\nos.kill(os.getppid(), 9)\nimport time; time.sleep(5)"

    result = await run(program, outputs=("a",))

    assert result.error.code == "killed"
    assert result.artifacts == ()
    assert result.duration_ms < 3000


async def test_a_program_that_stops_the_runner_is_killed_at_the_limit(run):
    program = "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(60)"

    result = await run(program, timeout_s=1)

    assert result.error.code == "timeout"
    assert result.duration_ms < 1000 + 2500


async def test_writing_to_descriptors_of_the_parent_reaches_nobody(run):
    program = """
import os
for number in range(3, 64):
    try: os.write(number, b"\\xff" * 100000)
    except OSError: pass
"""

    result = await run(program, timeout_s=5)

    assert result.error is None or result.error.code == "timeout", result
