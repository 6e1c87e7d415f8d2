"""What the escape battery can't see from inside, on the real sandbox; the battery has tests of its own."""

import asyncio
import os
import platform
from pathlib import Path

import pytest

from everturn.execution.messages import Capability, GatewayCall, ToolGrant, ToolReply

ONE_TOOL = Capability((ToolGrant("web_tools.web_search"),))


async def test_outside_the_program_really_is_the_user_that_the_receipt_names(run):
    uids: set[int] = set()

    async def look(call: GatewayCall) -> ToolReply:
        uids.update(uid for pid, uid in load_uids().items() if "-m executor" in load_command(pid))
        return ToolReply(call.id, True)

    result = await run("await web_tools.web_search(query='x')", capability=ONE_TOOL, call_tool=look)

    assert result.ok, result.report_text
    reported = result.record.posture.outer_uid
    assert reported in uids
    assert reported >= 20_000 if os.geteuid() == 0 else reported == os.geteuid()


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
for number in set(range(1, 65)) - {32, 33}:
    for pid in {1, os.getppid()}:
        try: os.kill(pid, number)
        except PermissionError: assert os.getppid() != 1
open(OUTPUT_DIR + "/a", "w").write("a")
"""

    result = await run(program, outputs=("a",))

    assert result.ok, result.report_text
    assert [artifact.body for artifact in result.artifacts] == [b"a"]


async def test_a_program_can_not_take_away_what_its_runner_needs(run):
    program = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
class Pair(ctypes.Structure): _fields_ = [("soft", ctypes.c_ulong), ("hard", ctypes.c_ulong)]
for pid in (1, os.getpid(), 1 << 32 | 1):
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
        assert libc.syscall(302, ctypes.c_ulong(pid), kind, ctypes.byref(Pair(0, 0)), None) == -1
        assert ctypes.get_errno() == 1
print(resource.getrlimit(resource.RLIMIT_NOFILE))
open(OUTPUT_DIR + "/a", "w").write("a")
"""

    result = await run(program, outputs=("a",))

    assert result.ok, result.report_text
    assert [artifact.body for artifact in result.artifacts] == [b"a"]


async def test_folders_as_deep_as_they_come_cost_no_output(run):
    program = """
import os
os.makedirs(OUTPUT_DIR + "/kept")
open(OUTPUT_DIR + "/kept/a", "w").write("a")
os.chdir(OUTPUT_DIR)
for _ in range(990):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
"""

    result = await run(program, outputs=("kept/a",))

    assert result.ok, result.report_text
    assert [artifact.body for artifact in result.artifacts] == [b"a"]
    assert "this folder was not searched" in result.report_text


async def test_a_program_stays_the_first_to_be_killed_without_memory(run, sandbox):
    program = """
before = open("/proc/self/oom_score_adj").read()
try: open("/proc/self/oom_score_adj", "w").write("0")
except OSError: pass
print(before == open("/proc/self/oom_score_adj").read() == "1000\\n")
"""

    result = await run(program)

    if sandbox.image and not may_hold_oom_scores():
        pytest.skip("the kernel holds the score only where the engine has CAP_SYS_RESOURCE")
    assert result.user_out_tail == "True\n", result.report_text


def may_hold_oom_scores() -> bool:
    capabilities = Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0]
    return bool(int(capabilities, 16) >> 24 & 1)


HOLD_COUNTERS = """
import ctypes, errno, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
kept = []
while (watch := libc.inotify_init1(0)) >= 0: kept.append(watch)
print("inotify", errno.errorcode[ctypes.get_errno()])
for watch in kept: os.close(watch)
kept = [libc.inotify_init1(0) for _ in range(200)]
timers = 0
timer = ctypes.c_void_p()
while libc.syscall(222, 0, None, ctypes.byref(timer)) == 0: timers += 1
print("timers", errno.errorcode[ctypes.get_errno()], timers)
for _ in range(20):
    for end in os.pipe():
        try: fcntl.fcntl(end, 1031, 1 << 20)
        except OSError: pass
await web_tools.web_search(query="held")
"""
USE_COUNTERS = """
import ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
print(libc.inotify_init1(0) >= 0)
print(libc.syscall(222, 0, None, ctypes.byref(timer)) == 0)
print(fcntl.fcntl(os.pipe()[0], 1032))
context = ctypes.c_ulong()
print(libc.syscall(206, 1000, ctypes.byref(context)), ctypes.get_errno())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives each run a user of its own")
async def test_runs_do_not_share_the_counters_of_a_user(run):
    held, release = asyncio.Event(), asyncio.Event()

    async def hold(call: GatewayCall) -> ToolReply:
        held.set()
        await release.wait()
        return ToolReply(call.id, True)

    holding = asyncio.create_task(run(HOLD_COUNTERS, timeout_s=120, capability=ONE_TOOL, call_tool=hold))
    try:
        await asyncio.wait((asyncio.create_task(held.wait()), holding), return_when=asyncio.FIRST_COMPLETED)
        assert held.is_set(), holding.result().report_text
        other = await run(USE_COUNTERS, timeout_s=60)
    finally:
        release.set()
    first = await holding

    assert "inotify EMFILE" in first.user_out_tail
    assert "timers EAGAIN" in first.user_out_tail
    assert other.user_out_tail.split() == ["True", "True", "65536", "-1", "1"], other.report_text
    assert first.record.posture.outer_uid != other.record.posture.outer_uid


async def test_a_program_can_not_watch_which_libraries_other_programs_open(run):
    program = """
import asyncio, ctypes, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
watcher = libc.inotify_init1(0)
for folder in ("/usr/lib", os.path.dirname(asyncio.__file__), OUTPUT_DIR):
    assert libc.inotify_add_watch(watcher, folder.encode(), 0x20) == -1, folder
    assert ctypes.get_errno() == 1
folder = os.open(os.path.dirname(asyncio.__file__), os.O_RDONLY)
for command in (1026, 1 << 32 | 1026):
    watched = libc.syscall(NUMBER, folder, ctypes.c_ulong(command), ctypes.c_ulong(0x80000001))
    print(watched, ctypes.get_errno())
""".replace("NUMBER", "72" if platform.machine() == "x86_64" else "25")

    result = await run(program)

    assert result.ok, result.report_text
    if not result.record.image:  # the folders of an image belong to one run
        assert result.user_out_tail == "-1 1\n-1 1\n"


async def test_writing_to_descriptors_of_the_parent_reaches_nobody(run):
    program = """
import os
for number in range(3, 64):
    try: os.write(number, b"\\xff" * 100000)
    except OSError: pass
"""

    result = await run(program, timeout_s=5)

    assert result.error is None or result.error.code == "timeout", result
