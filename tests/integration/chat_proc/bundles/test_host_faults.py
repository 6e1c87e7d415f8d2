"""Code of a bundle that crashes, hangs, floods, leaks or attacks: each call ends, the worker keeps its pace, and the
next call is served."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest
from helpers.event_loop import watch_loop
from helpers.waiting import wait_until
from structlog.testing import capture_logs

from chat_proc.bundles.host import host, host_process
from chat_proc.bundles.host.host_process import HostLost
from chat_proc.bundles.host.processes import claim_uid
from chat_proc.bundles.host.section import HostSection
from chat_proc.catalog.tool import ToolRaised
from everturn.core.errors import Invalid
from everturn.core.loops import LOOPS
from everturn.execution import users
from everturn.execution.messages import UidRange
from everturn_sdk.protocol import MAX_CONTENT_BYTES

pytestmark = [pytest.mark.sandbox, pytest.mark.sampled]

TOOLS = '''
import mmap, signal, subprocess

HOME = os.environ["HOME"]

def count(name: str) -> int:
    """How often it was called, across processes."""
    with open(f"{HOME}/{name}", "a+") as file:
        file.write("x")
        file.seek(0)
        return len(file.read())

@tool(effect="pure")
async def pid() -> int:
    """The process."""
    return os.getpid()

@tool(effect="pure")
async def crash_once() -> int:
    """Crashes at the first call."""
    if (number := count("once")) == 1:
        os._exit(7)
    return number

@tool(effect="idempotent")
def crash() -> None:
    """Crashes."""
    count("crash")
    os._exit(7)

@tool()
def crash_irreversibly() -> None:
    """Crashes."""
    count("irreversible")
    os.kill(os.getpid(), signal.SIGSEGV)

@tool(effect="pure")
def counted(name: str) -> int:
    """How often a tool was called."""
    return count(name) - 1

@tool(effect="pure")
async def wait_then(seconds: float) -> int:
    """Waits."""
    await asyncio.sleep(seconds)
    return os.getpid()

@tool()
async def wait_irreversibly(seconds: float) -> None:
    """Waits, and is not repeated."""
    await asyncio.sleep(seconds)

@tool(effect="pure")
async def block() -> None:
    """Blocks the event loop."""
    time.sleep(60)

@tool(effect="pure")
def spin() -> None:
    """Never returns."""
    while True:
        pass

@tool(effect="pure")
async def refuse_to_end() -> None:
    """Ignores its cancellation."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

@tool(effect="pure")
def eat(gib: int, shared: bool = False) -> str:
    """Takes memory."""
    if shared:
        held = mmap.mmap(-1, gib << 30)
    else:
        held = bytearray(gib << 30)
    for offset in range(0, len(held), 4096):
        held[offset] = 1
    return "ate"

KEPT = []

@tool(effect="pure")
def keep(what: str) -> int:
    """Keeps a little more of something with each call."""
    match what:
        case "memory":
            KEPT.append(bytearray(100 << 20))
        case "files":
            KEPT.append([open("/dev/null") for _ in range(50)])
        case "threads":
            for _ in range(10):
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return os.getpid()

@tool(effect="pure")
def fork_bomb() -> int:
    """Forks until it can't."""
    forks = 0
    while True:
        try:
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
            forks += 1
        except OSError:
            return forks

@tool(effect="pure")
def fill(mib: int) -> str:
    """Writes a file, and starts processes meanwhile."""
    count("fill")
    with open(f"{HOME}/large", "wb") as file:
        for _ in range(mib):
            file.write(b"x" * (1 << 20))
    while True:
        subprocess.run(["true"])

@tool(effect="pure")
def nest(depth: int) -> str:
    """Nests folders, and closes some."""
    os.mkdir(f"{HOME}/closed")
    os.mkdir(f"{HOME}/closed/inner")
    os.chmod(f"{HOME}/closed", 0)
    os.chdir(HOME)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    return HOME

@tool(effect="pure")
def leave_behind() -> list[int]:
    """Starts processes that hide."""
    script = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\nif os.fork(): os._exit(0)\\ntime.sleep(600)"
    subprocess.run([sys.executable, "-c", script])
    return [os.getpid(), os.getuid()]

@tool(effect="pure")
def shout(lines: int, per_s: int = 0) -> str:
    """Prints."""
    for number in range(lines):
        print(f"line {number} " + "x" * 80)
        if per_s and number % (per_s // 100) == 0:
            time.sleep(0.01)
    return "shouted"

@tool(effect="pure")
def print_for_ever(data: bytes) -> None:
    """Prints as fast as it can."""
    while True:
        os.write(1, data)

@tool(effect="pure")
def shout_without_end(mib: int) -> str:
    """Prints one long line."""
    for _ in range(mib):
        os.write(1, b"x" * (1 << 20))
    return "shouted"

@tool(effect="pure")
def pour(mib: int) -> str:
    """Returns a lot."""
    return "x" * (mib << 20)

@tool(effect="pure")
async def send(data: bytes) -> None:
    """Writes to the worker's socket."""
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
    await asyncio.sleep(60)

@tool(effect="pure")
def many(count: int) -> list[int]:
    """Returns many values."""
    return [0] * count

@tool(effect="pure")
def odd(kind: str) -> object:
    """Returns what can be written as JSON but not read."""
    value: object = []
    for _ in range(220):
        value = [value]
    return 10 ** 5_000 if kind == "number" else value

def build_flood(kind: str) -> bytes:
    from everturn_sdk.protocol import Claim, Event, encode_message
    if kind == "progress":
        return encode_message(Event(number=1, event="progress", text="again")) * 100
    if kind == "values":
        return encode_message(Event(number=1, event="data", data={"a": [[]] * 9_000}))
    if kind == "lists":
        body = b'{"kind":"event","number":1,"event":"data","data":{"a":[' + b"[]," * 80_000 + b"1]}}"
        return len(body).to_bytes(4, "big") + body
    rows = b'[' + b'{"url":""},' * 1_400_000 + b'{"url":""}]'
    parts = [rows[start : start + (1 << 18)] for start in range(0, len(rows), 1 << 18)]
    claim = encode_message(Claim(number=1, request=1, content_bytes=len(rows)))
    return b"".join((0x80000000 | len(part)).to_bytes(4, "big") + part for part in parts) + claim

@tool(effect="pure")
async def flood(kind: str) -> None:
    """Sends messages for ever."""
    descriptor, frame = int(sys.argv[1]), build_flood(kind)
    os.set_blocking(descriptor, True)
    while True:
        os.write(descriptor, frame)

@tool(effect="pure")
def leak(where: str, context: ToolContext) -> str:
    """Shows a secret."""
    secret = get_secret("b:api_key")
    match where:
        case "print":
            print("key", secret)
        case "log":
            context.log("key " + secret)
        case "progress":
            context.progress("key " + secret)
        case "notice":
            raise ToolError("key " + secret)
        case "exception":
            raise ValueError("key " + secret)
    return "key " + secret
'''

STORING = '''
@tool(effect="pure")
async def store(context: ToolContext) -> str:
    """Stores a file."""
    return await context.put_artifact("outputs/a.md", b"x")
'''

SLOW = {
    "tools_descriptor.py": 'TOOLS_SPECS = [{"ref": "desk.py", "alias": "desk"}]',
    "desk.py": '''
import os
from everturn_sdk import tool

CHANGED = f"{os.environ['HOME']}/changed"

@tool(effect="pure")
def is_loaded() -> str:
    """Whether the workflow was loaded."""
    return os.environ.get("LOADED", "no")

@tool()
def crash(change: bool) -> None:
    """Crashes."""
    if change:
        open(CHANGED, "w").close()
    os._exit(7)

if os.path.exists(CHANGED):
    @tool(effect="pure")
    def another() -> None:
        """Another tool."""
''',
    "workflow.py": """
import asyncio, os
from everturn_sdk import BaseWorkflow

class Slow(BaseWorkflow):
    async def on_bundle_load(self):
        await asyncio.sleep(1)
        os.environ["LOADED"] = "yes"

    async def run(self, payload):
        return "done"
""",
}


@pytest.fixture
async def desk(open_host):
    return await open_host(TOOLS, secrets={"api_key": "sesame-sesame"})


async def is_alive(pid: int) -> bool:
    return await asyncio.to_thread(os.path.exists, f"/proc/{pid}")


async def test_a_pure_call_is_made_again_by_another_process(desk):
    outcome = await desk.call("crash_once")

    assert (outcome.status, outcome.value) == ("ok", 2)


async def test_a_repeatable_call_that_crashes_again_is_an_error(desk):
    outcome = await desk.call("crash")

    assert outcome.status == "error"
    assert "desk.crash failed: The process of this agent's tools ended during the call." in outcome.text
    assert "it ended with status 7" in outcome.text
    assert (await desk.call("counted", name="crash")).value == 2


async def test_an_irreversible_call_is_not_made_again(desk):
    with pytest.raises(HostLost, match="killed by signal 11"):
        await desk.call("crash_irreversibly")

    assert (await desk.call("counted", name="irreversible")).value == 1


async def test_calls_beside_a_crash_are_made_again(desk):
    beside = [asyncio.create_task(desk.call("wait_then", turn_id=f"turn_{n}", seconds=0.5)) for n in range(5)]
    await asyncio.sleep(0.2)
    await desk.call("crash_once")

    outcomes = await asyncio.gather(*beside)

    assert {outcome.status for outcome in outcomes} == {"ok"}


async def test_a_call_that_is_cancelled_during_a_start_harms_no_other(desk):
    before = (await desk.call("pid")).value
    os.kill(before, signal.SIGKILL)
    await wait_until(lambda: not desk.host._running)
    cancelled = asyncio.create_task(desk.call("pid"))
    await wait_until(lambda: desk.host._running)
    cancelled.cancel()

    outcomes = await asyncio.gather(*(desk.call("pid") for _ in range(3)))

    assert cancelled.cancelled()
    assert [outcome.status for outcome in outcomes] == ["ok"] * 3, outcomes


async def test_a_process_that_describes_other_tools_than_before_is_not_used(open_host):
    desk = await open_host(
        TOOLS + 'if count("start") > 1:\n    @tool(effect="pure")\n    def other() -> None:\n        """Differs."""\n'
    )
    os.kill((await desk.call("pid")).value, signal.SIGKILL)

    outcome = await desk.call("pid")

    assert outcome.status == "error"
    assert "it describes other tools than when it was started for the first time" in outcome.text


async def test_three_crashes_stop_a_tool_for_its_turn_only(desk):
    await desk.call("crash")
    third = await desk.call("crash")
    stopped = await desk.call("crash")

    assert third.text.startswith("desk.crash failed: ")
    assert "It was not repeated: Its calls have ended their process 3 times" in third.text
    assert stopped.status == "error"
    assert stopped.text.startswith("desk.crash was not called: ")
    assert "ended their process 3 times in this turn" in stopped.text
    assert (await desk.call("counted", name="crash")).value == 3
    assert (await desk.call("pid")).status == "ok"
    assert "failed" in (await desk.call("crash", turn_id="turn_2")).text


@pytest.mark.slow
async def test_a_process_that_keeps_crashing_is_started_after_growing_pauses(desk):
    with capture_logs() as logs:
        for number in range(3):
            await desk.call("crash", turn_id=f"turn_{number}")
        refused = await desk.call("pid")

    pauses = [line["pause_s"] for line in logs if line["event"] == "The process of a bundle has ended"]
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert refused.status == "error"
    assert "starts again in" in refused.text


async def test_a_process_that_ran_for_long_starts_again_without_a_pause(desk, monkeypatch):
    monkeypatch.setattr(host, "STEADY_S", 0.0)
    with capture_logs() as logs:
        for number in range(2):
            await desk.call("crash", turn_id=f"turn_{number}")

    pauses = [line["pause_s"] for line in logs if line["event"] == "The process of a bundle has ended"]
    assert len(pauses) >= 3
    assert set(pauses) == {0.0}


async def test_only_so_many_calls_run_at_once(open_host, monkeypatch):
    monkeypatch.setattr(host_process, "MAX_CALLS", 2)
    desk = await open_host(TOOLS)
    began_s = time.monotonic()

    outcomes = await asyncio.gather(*(desk.call("wait_then", seconds=0.2) for _ in range(5)))

    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert time.monotonic() - began_s >= 0.6


async def test_a_blocked_event_loop_is_replaced(open_host):
    desk = await open_host(TOOLS, blocked_after_s=1.0)
    before = (await desk.call("pid")).value
    began_s = time.monotonic()

    outcome = await desk.call("block")

    assert "its event loop was blocked for 1 s" in outcome.text
    assert time.monotonic() - began_s < 10
    assert (await desk.call("pid")).value != before
    assert not await is_alive(before)


@pytest.mark.parametrize(("change", "text"), [(False, "yes"), (True, "it describes other tools than when it was")])
async def test_a_process_serves_nobody_before_it_is_loaded(open_host, change, text):
    desk = await open_host(files=SLOW)
    with pytest.raises(HostLost):
        await desk.call("crash", change=change)
    first = asyncio.create_task(desk.call("is_loaded"))
    await wait_until(lambda: desk.host._running)
    first.cancel()

    async with asyncio.timeout(30):
        outcomes = await asyncio.gather(*(desk.call("is_loaded") for _ in range(3)))

    assert first.cancelled()
    assert all(text in outcome.text for outcome in outcomes)


@pytest.mark.parametrize("name", ["spin", "refuse_to_end"])
async def test_a_tool_that_never_ends_is_replaced_without_harm_to_others(open_host, name):
    desk = await open_host(TOOLS, cancel_grace_s=0.5)
    before = (await desk.call("pid")).value
    beside = asyncio.create_task(desk.call("wait_then", seconds=3))

    with capture_logs() as logs:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await desk.call(name)
        await asyncio.sleep(1)

        assert (await desk.call("pid")).value != before
        assert (await beside).value == before
        await wait_until(lambda: any(log["event"] == "The process of a bundle has ended" for log in logs))
    assert not await is_alive(before)
    # Functions that a person has stopped are no crashes, after which the next start would be delayed.
    assert [log["failures"] for log in logs if log["event"] == "The process of a bundle has ended"] == [0]


async def test_a_call_that_ends_when_cancelled_keeps_the_process(desk):
    before = (await desk.call("pid")).value

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await desk.call("wait_then", seconds=60)

    assert (await desk.call("pid")).value == before


@pytest.mark.parametrize("shared", [False, True])
async def test_memory_over_the_limit_is_refused(desk, shared):
    with pytest.raises(ToolRaised, match=r"MemoryError|Cannot allocate memory"):
        await desk.call("eat", gib=5, shared=shared)

    assert (await desk.call("pid")).status == "ok"


@pytest.mark.parametrize("what", ["memory", "files", "threads"])
async def test_a_process_that_keeps_more_and_more_is_replaced_without_harm_to_others(open_host, what):
    desk = await open_host(TOOLS, section=HostSection(memory_mib=512, open_files=256, processes=40))
    before = (await desk.call("pid")).value
    beside = asyncio.create_task(desk.call("wait_then", seconds=1))

    with capture_logs() as logs, pytest.raises(ToolRaised):
        for _ in range(20):
            await desk.call("keep", what=what)
    if what == "threads":
        # Both processes are of one user, whose threads are counted together.
        await wait_until(lambda: not os.path.exists(f"/proc/{before}"))

    after = (await desk.call("keep", what=what)).value
    assert after != before
    assert (await beside).value == before
    await wait_until(lambda: not os.path.exists(f"/proc/{before}"))
    assert (await desk.call("pid")).value == after
    assert [log["reason"] for log in logs if log["event"] == "The process of a bundle is replaced"] == ["exhausted"]


async def test_at_most_one_replaced_process_lives_beside_the_next_one(open_host):
    desk = await open_host(TOOLS, section=HostSection(open_files=256))
    pids, waiting = [], []

    async def exhaust() -> None:
        pids.append((await desk.call("pid")).value)
        waiting.append(asyncio.create_task(desk.call("wait_irreversibly", seconds=20)))
        with pytest.raises(ToolRaised):
            for _ in range(20):
                await desk.call("keep", what="files")

    def alive() -> list[bool]:
        return [os.path.exists(f"/proc/{pid}") for pid in pids]

    await exhaust()
    await exhaust()
    assert alive() == [True, True] and not any(each.done() for each in waiting)
    pids.append((await desk.call("pid")).value)

    assert len(set(pids)) == 3 and alive() == [False, True, True]
    with pytest.raises(HostLost, match="too little of its memory, open files or threads is left"):
        await waiting[0]
    assert not waiting[1].done()
    waiting[1].cancel()


async def test_the_memory_of_a_bundle_is_its_own_choice_within_the_maximum(open_host):
    small = await open_host(TOOLS, section=HostSection(memory_mib=4096), memory_max_mib=512)
    # Other processes may leave it little time for its beats while it writes.
    large = await open_host(TOOLS, section=HostSection(memory_mib=2048), blocked_after_s=60.0)

    with pytest.raises(ToolRaised, match="MemoryError"):
        await small.call("eat", gib=1)
    assert (await large.call("eat", gib=1)).text == "ate"


async def test_a_fork_bomb_ends_at_its_limit_and_is_removed(open_host):
    desk = await open_host(TOOLS, section=HostSection(processes=100))
    if os.geteuid() != 0:
        pytest.skip("the number of processes counts those of this user")
    _, uid = (await desk.call("leave_behind")).value

    forks = (await desk.call("fork_bomb")).value

    assert 20 < forks < 100
    await desk.host.close()
    await wait_until(lambda: count_processes(uid) == 0)


async def test_a_process_whose_files_take_too_much_space_is_replaced(open_host):
    desk = await open_host(TOOLS, section=HostSection(disk_mib=32))

    outcome = await desk.call("fill", mib=40)

    assert "its files took more than 32 MiB, or were too many" in outcome.text
    assert (await desk.call("counted", name="fill")).value == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
async def test_shared_memory_counts_as_space_and_goes_with_the_process(open_host):
    source = """
import multiprocessing

@tool(effect="idempotent")
async def share(mib: int) -> int:
    \"\"\"Shares memory.\"\"\"
    multiprocessing.get_context("spawn").Semaphore()
    folder = f"/dev/shm/everturn-{os.getuid()}"
    os.mkdir(folder)
    for number in range(mib):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(bytes(1 << 20))
    await asyncio.sleep(8 if mib > 16 else 0)
    return os.getuid()
"""
    async with AsyncExitStack() as stack:
        desk = await open_host(source, stack=stack, section=HostSection(disk_mib=16))

        outcome = await desk.call("share", mib=20)
        uid = (await desk.call("share", mib=2)).value

    assert "its files took more than 16 MiB" in outcome.text
    assert f"everturn-{uid}" not in await asyncio.to_thread(os.listdir, "/dev/shm")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
async def test_no_two_bundles_have_the_same_user(open_host):
    source = """
@tool(effect="idempotent")
async def who() -> int:
    \"\"\"Says who it is.\"\"\"
    return os.getuid()
"""
    few = range(24_100, 24_102)
    first = await open_host(source, uids=few)
    async with AsyncExitStack() as stack:
        second = await open_host(source, uids=few, stack=stack)
        assert {(await each.call("who")).value for each in (first, second)} == set(few)
        with pytest.raises(Invalid, match="all 2 users of BUNDLE_UIDS are in use"):
            await open_host(source, uids=few)
    assert (await (await open_host(source, uids=few)).call("who")).value in few


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
async def test_a_cancelled_claim_leaves_its_user_to_others(monkeypatch):
    begun, go_on, look = threading.Event(), threading.Event(), users.find_owners_of_processes
    locks = Path(users.find_run_folder()) / users.USER_LOCKS

    def look_slowly() -> set[int]:
        begun.set()
        go_on.wait(20)
        return look()

    async def claim() -> int | None:
        async with claim_uid(range(24_100, 24_101)) as uid:
            return uid

    monkeypatch.setattr(users, "find_owners_of_processes", look_slowly)
    claiming = asyncio.create_task(claim())
    await asyncio.to_thread(begun.wait, 20)
    claiming.cancel()
    await asyncio.wait({claiming}, timeout=10)
    assert claiming.cancelled(), "it waits for no thread"
    monkeypatch.setattr(users, "find_owners_of_processes", look)
    go_on.set()

    def is_free() -> bool:
        with contextlib.suppress(OSError), users.claim_user(UidRange(24_100, 24_100), locks, "UIDS"):
            return True
        return False

    await wait_until(is_free)


async def test_a_bundle_that_is_unpacked_for_a_cancelled_caller_leaves_no_files(open_host, tmp_path, monkeypatch):
    begun, go_on, make_home = threading.Event(), threading.Event(), host.make_home

    def make_slowly(home: Path, uid: int | None) -> None:
        begun.set()
        go_on.wait(20)
        make_home(home, uid)

    monkeypatch.setattr(host, "make_home", make_slowly)
    opening = asyncio.create_task(open_host(TOOLS, folder=tmp_path))
    await asyncio.to_thread(begun.wait, 20)
    opening.cancel()
    await asyncio.wait({opening}, timeout=5)
    assert opening.cancelled()
    assert os.listdir(tmp_path)
    go_on.set()

    await wait_until(lambda: not os.listdir(tmp_path))


async def test_folders_beyond_every_depth_are_removed_with_the_bundle(open_host, tmp_path):
    async with AsyncExitStack() as stack:
        desk = await open_host(TOOLS, stack=stack, folder=tmp_path)
        # On a busy machine the process may be ended first because it nests too deep.
        await desk.call("nest", depth=1_500)

    assert not await asyncio.to_thread(os.listdir, tmp_path)


async def test_hidden_processes_end_with_the_host(desk):
    pid, _ = (await desk.call("leave_behind")).value
    await wait_until(lambda: len(find_children_of_watchdog(pid)) == 2)
    hidden = find_children_of_watchdog(pid)

    await desk.host.close()

    await wait_until(lambda: not any(os.path.exists(f"/proc/{each}") for each in hidden))


async def test_a_killed_worker_leaves_nothing_behind(environments_folder, tmp_path):
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(environments_folder), str(tmp_path), stdout=subprocess.PIPE
    )
    pid = int(await worker.stdout.readline())
    await wait_until(lambda: len(find_children_of_watchdog(pid)) == 2)
    hidden = find_children_of_watchdog(pid)

    worker.send_signal(signal.SIGKILL)
    await worker.wait()

    await wait_until(lambda: not any(os.path.exists(f"/proc/{each}") for each in hidden))
    await wait_until(lambda: not list(tmp_path.iterdir()))


async def test_ten_thousand_lines_a_second_cost_the_worker_little(desk):
    with capture_logs() as logs:
        async with watch_loop() as watch:
            outcome = await desk.call("shout", lines=20_000, per_s=10_000)
            await asyncio.sleep(0.2)

    assert outcome.text == "shouted"
    lines = [line["text"] for line in logs if line["event"] == "Output of a bundle"]
    assert lines[0].startswith("line 0 ")
    assert 200 <= len(lines) <= 400
    assert any("lines were left out" in line for line in lines)
    assert watch.longest_s < 0.05


@pytest.mark.parametrize("data", [b"again\n", b"\n" * 65_536, b"x" * 65_536], ids=["lines", "empty", "one line"])
async def test_output_without_end_takes_little_of_the_loop(desk, data):
    call = asyncio.create_task(desk.call("print_for_ever", data=data))
    await asyncio.sleep(0.5)
    used_s, began_s = time.thread_time(), time.monotonic()
    await asyncio.sleep(2)
    share = (time.thread_time() - used_s) / (time.monotonic() - began_s)
    call.cancel()
    await asyncio.wait({call}, timeout=10)

    assert share < 0.25


@pytest.mark.slow
async def test_a_hundred_megabytes_of_output_are_cut(desk):
    with capture_logs() as logs:
        assert (await desk.call("shout_without_end", mib=100)).text == "shouted"

    assert sum(len(line.get("text", "")) for line in logs) < 10_000


async def test_a_result_of_a_hundred_megabytes_is_an_error(desk):
    with pytest.raises(ToolRaised, match="at most 16777216 are allowed"):
        await desk.call("pour", mib=100)

    assert len((await desk.call("pour", mib=15)).text) == 15 << 20


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\x00\x00\x00\x02{}", "kind"),
        (b"\x00\x00\x00\x04oops", "Invalid JSON"),
        (b'\x00\x00\x00\x1d{"kind":"ended","number":"x"}', "ended.number"),
        (b'\x00\x00\x00\x26{"kind":"described","content_bytes":9}', "a content of 0 bytes instead of 9"),
    ],
)
async def test_what_is_no_frame_ends_the_process(desk, data, why):
    before = (await desk.call("pid")).value

    outcome = await desk.call("send", data=data)

    assert outcome.status == "error"
    assert why in outcome.text
    assert (await desk.call("pid")).value != before


@pytest.fixture
def frozen() -> Iterator[None]:
    """The collector of garbage skips what was there before, as in a worker: it does not search all tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def flood(desk, kind):
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            await desk.call("flood", kind=kind)


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("kind", ["progress", "values", "lists", "claims"])
async def test_a_flood_of_messages_leaves_the_worker_its_loop_and_memory(desk, kind):
    used_kib = getrusage(RUSAGE_SELF).ru_maxrss
    async with watch_loop() as watch:
        await flood(desk, kind)

    assert watch.longest_s < 0.05
    assert (getrusage(RUSAGE_SELF).ru_maxrss - used_kib) * 1024 < 16 * MAX_CONTENT_BYTES
    assert len(desk.live.tool_events) <= 100


@pytest.mark.parametrize("kind", ["number", "lists"])
async def test_a_result_that_can_not_be_read_ends_its_call(desk, kind):
    async with asyncio.timeout(30):
        before = (await desk.call("pid")).value
        with pytest.raises(ToolRaised, match="its result is not JSON: "):
            await desk.call("odd", kind=kind)

        assert (await desk.call("pid")).value == before


async def test_a_result_of_too_many_values_is_an_error(desk):
    with pytest.raises(ToolRaised, match="Its result has more than 250000 values"):
        await desk.call("many", count=300_000)

    assert (await desk.call("many", count=200_000)).value == [0] * 200_000


@pytest.mark.parametrize("where", ["print", "log"])
async def test_printed_secrets_are_hidden(desk, where):
    with capture_logs() as logs:
        assert (await desk.call("leak", where=where)).text == "key [redacted]"
        await asyncio.sleep(0.2)

    assert "key [redacted]" in [line.get("text") for line in logs]
    assert "sesame" not in str(logs)


async def test_secrets_in_events_and_errors_are_hidden(desk):
    await desk.call("leak", where="progress")

    assert desk.live.tool_events == [("progress", "key [redacted]")]
    assert (await desk.call("leak", where="notice")).text == "key [redacted]"
    with pytest.raises(ToolRaised, match=r"key \[redacted\]"):
        await desk.call("leak", where="exception")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (desk.py, line 4)"),
        ("raise SystemExit('bye')", "SystemExit: bye (desk.py, line 4)"),
        ("os._exit(4)", "it ended with status 4"),
        (
            "import nothing_of_this_name",
            "ModuleNotFoundError: No module named 'nothing_of_this_name'. Name its package in requirements.txt, or "
            "correct the name (desk.py, line 4)",
        ),
        ("def f(:", "SyntaxError: invalid syntax (desk.py, line 4)"),
        ("raise SyntaxError('bad table')", "SyntaxError: bad table (desk.py, line 4)"),
        ("eval('1 +')", "SyntaxError: invalid syntax (<string>, line 1) (desk.py, line 4)"),
        ("print(get_secret('b:none'))", "This agent has no secret 'b:none'"),
        ("raise ValueError(get_secret('b:api_key'))", "ValueError: [redacted]"),
        ("while True: pass", "it was not ready within 2 s"),
        ("b'x' * (8 << 30)", "MemoryError"),
    ],
)
async def test_a_bundle_that_can_not_be_loaded_says_why(open_host, source, why):
    start_timeout_s = 2.0 if "not ready" in why else 60.0

    with pytest.raises(Invalid) as refused:
        await open_host(source, start_timeout_s=start_timeout_s, secrets={"api_key": "sesame-sesame"})

    assert why in refused.value.detail


async def test_a_defect_of_the_worker_fails_one_bundle_only(open_host, monkeypatch):
    desk = await open_host(STORING)

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(desk.objects, "save", fail)
    assert "It failed. The log of the worker has the reason." in (await desk.call("store")).text
    monkeypatch.setattr(host_process, "WatchedProcess", None)
    with pytest.raises(Invalid, match="the log of the worker has the reason"):
        await open_host(STORING)

    assert not [loop for loop in LOOPS.failing if loop.startswith("bundle")], "one bundle makes the worker unready"


def count_processes(uid: int) -> int:
    return sum(f"\nUid:\t{uid}\t" in text for text in read_all("status"))


def find_children_of_watchdog(pid: int) -> list[int]:
    """The host and the processes that hide from it: all have its watchdog as their parent."""
    parents = {int(text.split()[0]): int(text.rpartition(")")[2].split()[1]) for text in read_all("stat")}
    return [each for each, parent in parents.items() if parent == parents[pid]]


def read_all(name: str) -> list[str]:
    texts: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            texts.append((folder / name).read_text())
        except OSError:
            continue
    return texts


IMPORTS = "import asyncio, os, sys, threading, time\nfrom everturn_sdk import *\n"
WORKER = f"""
import asyncio, json, sys
from pathlib import Path
from chat_proc.bundles.host.environments import Environments
from chat_proc.bundles.host.host import open_bundle_host
from chat_proc.bundles.host.host_process import BundleCode, HostOptions
from everturn_sdk.protocol import CallContext

FILES = {{
    "tools_descriptor.py": b'TOOLS_SPECS = [{{"ref": "desk.py", "alias": "desk"}}]',
    "desk.py": {(IMPORTS + TOOLS).encode()!r},
}}

async def main():
    options = HostOptions(Environments(Path(sys.argv[1])), uids=range(23_000, 24_000), folder=Path(sys.argv[2]))
    async with open_bundle_host(BundleCode("desk", "1" * 64, FILES), options) as host:
        context = CallContext(call_id="c", tenant="t", project="p", user_id="u", roles=(), conversation_id="c",
                              turn_id="t", round=1, now="")
        ended, content = await host.call("desk.leave_behind", "t", {{}}, context, None, is_repeatable=False)
        print(json.loads(content)[0], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
