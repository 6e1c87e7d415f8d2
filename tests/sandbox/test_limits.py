"""Hungry programs on the real sandbox: each ends with a result that names the limit, and keeps what was written."""

import asyncio
import time

from everturn.execution.messages import Capability, GatewayCall, RunLimits, ToolGrant, ToolReply


async def test_a_timeout_keeps_the_files_written_so_far(run):
    program = "print('started')\nopen(OUTPUT_DIR + '/a.txt', 'w').write('early')\nwhile True: pass"
    started = time.monotonic()

    result = await run(program, outputs=("a.txt", "b.txt"), timeout_s=1)

    assert time.monotonic() - started < 1 + 1.5 * 3
    assert (result.error.code, result.limits_hit) == ("timeout", ("time",))
    assert [artifact.body for artifact in result.artifacts] == [b"early"]
    assert result.user_out_tail == "started\n"
    assert 1000 <= result.duration_ms < 1000 + 900 * 3


async def test_a_program_that_ignores_sigterm_and_forks_away_ends_at_the_limit(run):
    program = """
import os, signal, time
for number in range(1, 64):
    if number not in (9, 19, 32, 33): signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                with open(OUTPUT_DIR + "/alive", "a") as f: f.write("x")
                time.sleep(0.001)
time.sleep(60)
"""

    result = await run(program, timeout_s=1)

    assert result.error.code == "timeout"
    assert result.duration_ms < 1000 + 900 * 3


async def test_a_daemon_does_not_outlive_its_program(run):
    program = """
import os, time
open(OUTPUT_DIR + "/beat", "w").close()
if os.fork() == 0:
    os.setsid()
    while True:
        with open(OUTPUT_DIR + "/beat", "a") as f: f.write("x")
        time.sleep(0.001)
while not os.path.getsize(OUTPUT_DIR + "/beat"): time.sleep(0.001)
"""

    result = await run(program, outputs=("beat",), timeout_s=10)

    assert result.ok, result.report_text


async def test_cancelling_softly_keeps_the_files_and_takes_under_two_seconds(run):
    begun, stop = asyncio.Event(), asyncio.Event()
    program = """
import time
open(OUTPUT_DIR + "/a.txt", "w").write("kept")
await web_tools.web_search(query="begun")
time.sleep(60)
"""

    async def note(call: GatewayCall) -> ToolReply:
        begun.set()
        return ToolReply(call.id, True)

    one_tool = Capability((ToolGrant("web_tools.web_search"),))
    how = {"outputs": ("a.txt",), "timeout_s": 60, "stop": stop, "capability": one_tool, "call_tool": note}
    running = asyncio.create_task(run(program, **how))
    await begun.wait()
    started = time.monotonic()

    stop.set()
    result = await running

    assert time.monotonic() - started < 2 * 3
    assert result.error.code == "cancelled"
    assert [artifact.body for artifact in result.artifacts] == [b"kept"]


async def test_a_flood_of_output_is_cut_to_its_tail(run):
    program = (
        "import sys\nline = 'x' * 1023 + '\\n'\nfor _ in range(40 * 1024): sys.stdout.write(line)\nprint('the end')"
    )

    result = await run(program, timeout_s=20)

    assert result.ok, result.report_text
    assert result.limits_hit == ("stdout",)
    assert result.user_out_tail.endswith("the end\n")
    assert len(result.user_out_tail) == RunLimits().tail_chars


async def test_a_memory_bomb_is_an_error_with_its_line(run):
    result = await run("print('on')\nx = bytearray(3 << 30)", profile="small")

    assert result.error.code == "memory_limit"
    assert result.error.where == "program.py line 2"
    assert "memory" in result.limits_hit


async def test_memory_taken_bit_by_bit_ends_at_the_limit(run):
    program = "open(OUTPUT_DIR + '/a', 'w').write('a')\nkept = []\nwhile True: kept.append(bytearray(1 << 20))"

    result = await run(program, outputs=("a",), profile="small")

    assert result.error.code == "memory_limit"
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]


async def test_memory_taken_by_forks_ends_at_the_limit(run):
    program = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(5)
        os._exit(0)
os.wait()
"""

    result = await run(program, profile="small", timeout_s=6)

    assert "memory" in result.limits_hit


async def test_shared_memory_counts_too(run):
    program = "import mmap\nm = mmap.mmap(-1, 600 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"

    result = await run(program, profile="small")

    assert not result.ok
    assert "memory" in result.limits_hit


async def test_a_fork_bomb_ends_at_the_limit(run):
    program = (
        "import os\nopen(OUTPUT_DIR + '/a', 'w').write('a')\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    )

    result = await run(program, outputs=("a",), profile="small", timeout_s=1.5)

    assert result.error.code == "timeout"
    assert result.duration_ms < 1500 + 1000 * 3
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]


async def test_too_many_processes_are_refused_to_the_program(run):
    program = "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(9); os._exit(0)"

    result = await run(program, profile="small")

    assert result.error.code == "program_error"
    assert "processes" in result.limits_hit


async def test_a_full_disk_is_an_error_and_the_rest_is_kept(run):
    program = """
open(OUTPUT_DIR + "/a", "w").write("a")
for number in range(100):
    with open(f"{OUTPUT_DIR}/{number}", "wb") as f: f.write(b"x" * (1 << 20))
"""

    result = await run(program, outputs=("a",), profile="small")

    assert "No space left" in result.error.message
    assert result.limits_hit == ("disk",)
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]


async def test_too_many_files_are_an_error(run, sandbox):
    if "inodes" not in sandbox.posture.disk:
        return

    result = await run("for n in range(100000): open(str(n), 'w').close()", profile="small")

    assert result.limits_hit == ("disk",)


async def test_a_file_that_grows_too_large_is_an_error(run):
    result = await run("open('big', 'wb').truncate(1 << 40)", profile="small")

    assert result.limits_hit == ("file_size",)


async def test_too_many_open_files_are_an_error(run):
    result = await run("kept = [open('/dev/null') for _ in range(100)]", profile="small")

    assert result.limits_hit == ("open_files",)


async def test_processor_time_is_limited(run):
    result = await run("while True: pass", profile="little_cpu", timeout_s=8)

    assert (result.error.code, result.limits_hit) == ("cpu_limit", ("cpu",))


async def test_more_output_bytes_than_may_leave_are_refused_by_file(run):
    program = "for name in 'ab': open(OUTPUT_DIR + '/' + name, 'wb').write(name.encode() * (7 << 19))"

    result = await run(program, outputs=("a", "b"), profile="small")

    assert result.error.code == "output_rejected"
    assert [artifact.filepath for artifact in result.artifacts] == ["a"]
    assert "b (too_large)" in result.error.message


async def test_a_neighbour_is_not_disturbed_by_a_bomb(run):
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    fine = "print(sum(range(1000)))"

    results = await asyncio.gather(run(bomb, profile="small", timeout_s=2), run(fine), run(fine))

    assert [result.ok for result in results] == [False, True, True]
