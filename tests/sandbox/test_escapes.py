"""What the escape battery can't see from inside, on the real sandbox; the battery has tests of its own."""

import os
from pathlib import Path

from everturn.wire.execution import Capability, GatewayCall, ToolGrant, ToolReply

ONE_TOOL = Capability((ToolGrant("web_tools.web_search"),))


async def test_outside_the_program_really_is_uid_1001(run, sandbox):
    uids: set[int] = set()

    async def look(call: GatewayCall) -> ToolReply:
        uids.update(uid for pid, uid in load_uids().items() if "-m executor" in load_command(pid))
        return ToolReply(call.id, True)

    result = await run("await web_tools.web_search(query='x')", capability=ONE_TOOL, call_tool=look)

    assert result.ok, result.report_text
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


async def test_a_program_can_neither_kill_nor_stop_nor_interrupt_its_runner(run):
    program = """
import os, signal
assert os.getppid() == 1
for number in set(range(1, 65)) - {32, 33}: os.kill(1, number)
open(OUTPUT_DIR + "/a", "w").write("a")
"""

    result = await run(program, outputs=("a",))

    assert result.ok, result.report_text
    assert [artifact.body for artifact in result.artifacts] == [b"a"]


async def test_writing_to_descriptors_of_the_parent_reaches_nobody(run):
    program = """
import os
for number in range(3, 64):
    try: os.write(number, b"\\xff" * 100000)
    except OSError: pass
"""

    result = await run(program, timeout_s=5)

    assert result.error is None or result.error.code == "timeout", result
