"""Supervisor and program in one container: what users keep apart there, and that nothing of a run outlives it."""

import contextlib
import os
import signal
from pathlib import Path

import docker
import pytest
from helpers.waiting import wait_until

from everturn.execution.messages import Capability, GatewayCall, ToolGrant, ToolReply
from exec_supervisor.broker.docker_bodies import COMBINED_ENTRYPOINT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may signal processes of a container")

SUPERVISOR, RUNNER, KILLER = 1002, 1003, 1004
ONE_TOOL = Capability((ToolGrant("web_tools.web_search"),))
CALL = "await web_tools.web_search(query=str(os.getuid()))\n"
KEEP = "open(OUTPUT_DIR + '/kept', 'w').write('kept')\n"
DAEMON = "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(600)\n"
BOMBS = """
import ctypes, os, signal, time
waiting, all_there = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.close(all_there)
        os.read(waiting, 1)
        os.setsid()
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        for number in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(number, signal.SIG_IGN)
        try: is_bomb = os.fork() == 0
        except OSError: is_bomb = False  # the others have taken all processes
        if is_bomb:
            os.setsid()
            while True:
                try: os.fork()
                except OSError: pass
        os._exit(0)
os.close(all_there)
time.sleep(0.2)
"""
REACH = """
import os, resource, signal
others = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != os.getpid()]
def attempt(do, *arguments):
    try: do(*arguments)
    except OSError: return
    print("reached", do, arguments)
def write(path):
    with open(path, "wb", buffering=0) as file: file.write(b"0")
def read(path): open(path, "rb").read(1)
for pid in others:
    for number in set(range(65)) - {32, 33}: attempt(os.kill, pid, number)
    attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))
    attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE)
    for name in ("auxv", "environ", "io", "maps", "mem", "pagemap", "personality", "stack", "syscall"):
        attempt(read, f"/proc/{pid}/{name}")
    for name in ("cwd", "exe", "root", "fd/0", "fd/3", "ns/mnt"): attempt(os.readlink, f"/proc/{pid}/{name}")
    for name in ("attr/current", "clear_refs", "comm", "coredump_filter", "mem", "oom_score_adj", "timerslack_ns"):
        attempt(write, f"/proc/{pid}/{name}")
attempt(os.unlink, "/run/everturn/gateway.sock")
attempt(write, "/run/everturn/other.sock")
lines = [line for pid in (*others, "self") for line in open(f"/proc/{pid}/status")]
print(len(others), {line.split()[1] for line in lines if line[:4] in ("CapP", "CapE", "CapB")})
"""


async def test_a_program_sees_its_supervisor_and_reaches_nothing_of_it(run_combined):
    result = await run_combined(REACH)

    assert result.user_out_tail == "3 {'0000000000000000'}\n", result.report_text


async def test_processes_that_do_not_end_by_themselves_end_with_the_program(run_combined):
    result = await run_combined(KEEP + BOMBS, outputs=("kept",))

    assert [artifact.body for artifact in result.artifacts] == [b"kept"], result.report_text
    assert result.ok


@pytest.mark.parametrize("user", [RUNNER, SUPERVISOR, pytest.param(KILLER, marks=pytest.mark.slow)])
async def test_the_container_ends_with_each_of_its_own_processes(run_combined, user: int):
    """The runner is only stopped: it must be killed then."""
    found: dict[int, int] = {}

    async def strike(call: GatewayCall) -> ToolReply:
        found.update({owner: pid for pid, owner in load_owners(call).items()})
        os.kill(found[user], signal.SIGSTOP if user == RUNNER else signal.SIGKILL)
        return ToolReply(call.id, True)

    program = f"{DAEMON}{CALL}time.sleep(60)"
    result = await run_combined(program, timeout_s=1, capability=ONE_TOOL, call_tool=strike)

    assert not result.ok
    assert found.keys() >= {SUPERVISOR, RUNNER, KILLER}
    await wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found.values()))


async def test_a_container_serves_one_run(run_combined, client: docker.APIClient):
    answers: list[str] = []

    async def start_again(call: GatewayCall) -> ToolReply:
        # The newest one can be the next warm one, whose executor has not started.
        running = client.containers(filters={"label": "everturn.role=combined", "status": "running"})
        program_uid = f" --program-uid {call.arguments['query']} "
        [serving] = [one["Id"] for one in running if program_uid in f"{one['Command']} "]
        begun = client.exec_create(serving, [*COMBINED_ENTRYPOINT, "--program-uid", "1999"], user="0")
        answers.append(client.exec_start(begun["Id"]).decode())
        return ToolReply(call.id, True)

    await run_combined(f"import os\n{CALL}", capability=ONE_TOOL, call_tool=start_again)

    assert "runs as a user that is reserved for runs" in answers[0]


def load_owners(call: GatewayCall) -> dict[int, int]:
    """The real users of the processes of a run's own, by pid. The program says which run it is."""
    wanted = f"--program-uid\0{call.arguments['query']}\0".encode()
    owners: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "cmdline").read_bytes():
                owners[int(entry.name)] = int((entry / "status").read_text().partition("\nUid:")[2].split()[0])
    return owners
