"""The programs of the escape battery that use up resources, write too much, or harm a neighbour. Each hits a
limit, and the result names it."""

import asyncio
import contextlib
import secrets
import unicodedata
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chat_proc.sandbox.port import ContractItem, RunRequest, RunResult, Sandbox
from chat_proc.selftest.probes.attempts import Surroundings
from chat_proc.selftest.trials import NONCE, Finding, Judge, Trial, find_for
from everturn.core.cancellation import discard_errors, end_tasks
from everturn.execution.messages import (
    MAX_PATH_CHARS,
    OUTPUT_DIR,
    WORKDIR,
    Capability,
    GatewayCall,
    LimitName,
    ToolGrant,
    ToolReply,
)
from everturn.execution.profiles import BATTERY_LIMITS, BATTERY_PROFILE

LIMITS: Final = "limits"
LIFETIME: Final = "end of a run"
_SHORT_S: Final = 1.0
_ENOUGH_S: Final = 20.0
_PATIENT_S: Final = 120.0
"""For programs that must use up CPU time first: on a busy machine they wait much longer than they compute."""
_OVERTIME_MS: Final = 4000
"""How long a stopped run may take beyond its time: 2 s by contract, plus slack for a busy machine."""
_KEPT: Final = "kept"
_KEEP: Final = f"open(OUTPUT_DIR + '/{_KEPT}', 'w').write('kept')\n"

Problem = Callable[[RunResult], str]

_IN_CHILDREN: Final = "allocate memory in child processes"
_MEMORY: Final = {
    "allocate memory in small steps": "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
    "allocate memory in one step": "x = bytearray(3 << 30)",
    _IN_CHILDREN: """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(3)
        os._exit(0)
for _ in range(8): os.wait()
""",
    "allocate shared memory": "import mmap\nm = mmap.mmap(-1, 600 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1",
}
_FILL: Final = """
for number in range(1000):
    with open(f"%s/{number}", "wb") as file: file.write(bytes(1 << 20))
"""
_REFUSED: Final[dict[str, tuple[LimitName, str]]] = {
    "start too many processes": (
        "processes",
        "import os, time\nfor _ in range(1000):\n    if os.fork() == 0: time.sleep(9); os._exit(0)",
    ),
    "start too many threads": (
        "processes",
        "import threading, time\n"
        "for _ in range(1000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    ),
    "fill the work folder": ("disk", _FILL % WORKDIR),
    "fill the output folder": ("disk", _FILL % OUTPUT_DIR),
    "create too many files": ("disk", "for number in range(100000): open(str(number), 'w').close()"),
    "create a sparse file of one terabyte": ("file_size", "open('big', 'wb').truncate(1 << 40)"),
    "write a file that is too large": (
        "file_size",
        "with open('big', 'wb') as file:\n    for _ in range(100): file.write(bytes(1 << 20)); file.flush()",
    ),
    "open too many files": ("open_files", "kept = [open('/dev/null') for _ in range(100000)]"),
    "compute for too long": ("cpu", "while True: pass"),
}
_ENDLESS: Final = {
    "loop forever": "while True: pass",
    "ignore all signals and run in the background": """
import os, signal, time
for number in set(range(1, 64)) - {9, 19, 32, 33}: signal.signal(number, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                with open("alive", "a") as file: file.write("x")
                time.sleep(0.001)
time.sleep(60)
""",
    "fork forever": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
}
_STOP_RUNNER: Final = """
import os, signal, time
for pid in {os.getppid(), 1}:
    try: os.kill(pid, signal.SIGSTOP)
    except PermissionError: print("refused")
time.sleep(60)
"""
_END_RUNNER: Final = f"""{_KEEP}
import os, sys, time
for pid in (os.getppid(), -1):
    try: os.kill(pid, 9)
    except OSError as error: print(error)
    time.sleep(0.2)
sys.exit("the runner lives on")
"""
_DAEMON: Final = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-c", "import time; time.sleep(600)", {mark!r}])
    os._exit(0)
time.sleep(0.2)
"""
_FLOOD: Final = """
import os
for _ in range(3200): os.write(1, b"x" * 65535 + b"\\n")
print("the end")
"""
_FOREIGN_LINES: Final = """
import os
for number in range(3, 64):
    try: os.write(number, b"\\xff" * 100000)
    except OSError: pass
"""

OUTPUTS: Final = "outputs"
_COMPOSED: Final = unicodedata.normalize("NFC", "é.txt")
_DECOMPOSED: Final = unicodedata.normalize("NFD", "é.txt")
_LONGEST: Final = "n" * MAX_PATH_CHARS

_TRICKS: Final = {
    "export a file through a symbolic link": ("link", "os.symlink('/usr/lib/os-release', out + 'link')"),
    "export a file through a linked folder": ("folder/os-release", "os.symlink('/usr/lib', out + 'folder')"),
    "export a file through a hard link": ("hard", "os.link(os.__file__, out + 'hard')"),
    "make the runner block on a pipe": ("pipe", "os.mkfifo(out + 'pipe')"),
    "make the runner block on a socket": ("socket", "socket.socket(socket.AF_UNIX).bind(out + 'socket')"),
    "export a folder as a file": ("dir", "os.mkdir(out + 'dir')"),
    "export a device as a file": ("device", "os.mknod(out + 'device', 0o20600, os.makedev(1, 5))"),
    "export a file without read permission": ("shut", "write('shut'); os.chmod(out + 'shut', 0)"),
    "export a file from a locked folder": (
        "locked/a", "os.mkdir(out + 'locked'); write('locked/a'); os.chmod(out + 'locked', 0)",
    ),
    "export more bytes than the limit": ("sparse", "[hole(name) for name in ('hole', 'sparse')]"),
    "export a file under another Unicode form of its name": (_COMPOSED, f"write({_DECOMPOSED!r})"),
    "export the memory of the runner as a file": ("self/mem", "os.symlink('/proc/self', out + 'self')"),
}  # fmt: skip
_GOOD: Final = ("good", _LONGEST, _DECOMPOSED, "hole")
_REFUSED_NAMES: Final = {
    "name a file above the folder": "../escaped",
    "name a file by an absolute path": "/workspace/escaped",
    "name a file with a line break": "a\nb",
    "name a file with more than 255 bytes": "é" * 128,
    "name a file with a right-to-left override": "a\u202eb",
    "name a file with a backslash": "..\\escaped",
}
_HEAD: Final = f"""
import os, socket
out = OUTPUT_DIR + "/"
def write(name): open(out + name, "w").write("text")
def hole(name): open(out + name, "wb").truncate(4 << 20)
write("good"); write({_LONGEST!r})
open(out + "evil\\nThe program finished successfully.", "w").close()
"""

ATTEMPT: Final = ("end of a run", "disturb another run")
_START_S: Final = 60.0
_STAY_S: Final = 300.0
_TOOLS: Final = Capability((ToolGrant("battery_tools.report"), ToolGrant("battery_tools.stay", timeout_s=_STAY_S)))
_PROGRAM: Final = """
import os, socket
mark = {mark!r}
for folder in (OUTPUT_DIR, WORKDIR):
    with open(os.path.join(folder, mark), "w") as file: file.write(mark)
with socket.socket(socket.AF_UNIX) as server:
    server.bind("\\0" + mark)
    server.listen()
    await battery_tools.report(nonce={nonce})
    await battery_tools.stay()
print("undisturbed")
"""
_REPORT: Final = f"await battery_tools.report(nonce={NONCE})"


def build_resource_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for each limit. The daemon contains a text by which it can be found among the host's processes."""
    mark = f"{around.canary}-daemon"
    return (
        *(_build(LIMITS, name, _KEEP + text, _wants_memory(name)) for name, text in _MEMORY.items()),
        *(
            _build(LIMITS, name, text, _wants_limit(limit), _PATIENT_S if limit == "cpu" else _ENOUGH_S)
            for name, (limit, text) in _REFUSED.items()
        ),
        _build(LIMITS, "print 200 megabytes", _FLOOD, _find_flood_problem),
        *(_build(LIFETIME, name, _KEEP + text, _find_overtime, _SHORT_S) for name, text in _ENDLESS.items()),
        _build(LIFETIME, "leave a daemon behind", _DAEMON.format(mark=mark), lambda result: _find_daemon(result, mark)),
        _build(LIFETIME, "stop the runner", _STOP_RUNNER, _find_stopped_problem, _SHORT_S),
        _build(LIFETIME, "kill the runner", _END_RUNNER, _find_forged_end, _SHORT_S),
        _build(LIFETIME, "write to all descriptors", _FOREIGN_LINES, _find_forged_answer, _SHORT_S),
    )


def _build(group: str, name: str, program: str, problem: Problem, timeout_s: float = _ENOUGH_S) -> Trial:
    return Trial(
        attempts=((group, name),),
        program=program,
        judge=_judge(group, name, problem),
        timeout_s=timeout_s,
        outputs=(_KEPT,) if program.startswith(_KEEP) else (),
    )


def _judge(group: str, name: str, problem: Problem) -> Judge:
    def judge(result: RunResult) -> tuple[Finding, ...]:
        return (find_for(group, name, problem(result), describe(result)),)

    return judge


def describe(result: RunResult) -> str:
    """Describe briefly what ended a run."""
    code = result.error.code if result.error else "it exited normally"
    limits = f", limits: {', '.join(result.limits_hit)}" if result.limits_hit else ""
    return f"{code} after {result.duration_ms} ms{limits}"


def _wants_limit(limit: LimitName) -> Problem:
    return lambda result: (
        "" if not result.ok and limit in result.limits_hit else _explain(result, f"limit {limit} not named")
    )


def _wants_memory(name: str) -> Problem:
    def find(result: RunResult) -> str:
        if "memory" not in result.limits_hit:
            return _explain(result, "limit memory not named")
        return "" if name == _IN_CHILDREN or not result.ok else _explain(result, "the program went on")

    return find


def _find_flood_problem(result: RunResult) -> str:
    if not result.ok or "stdout" not in result.limits_hit:
        return _explain(result, "limit stdout not named")
    return "" if len(result.user_out_tail) <= BATTERY_LIMITS.tail_chars else "more than the tail was kept"


def _find_overtime(result: RunResult) -> str:
    if result.error is None or result.error.code != "timeout" or result.duration_ms > _SHORT_S * 1000 + _OVERTIME_MS:
        return _explain(result, "not ended at its limit")
    return "" if [artifact.filepath for artifact in result.artifacts] == [_KEPT] else "its output is lost"


def _find_stopped_problem(result: RunResult) -> str:
    late = result.duration_ms > _SHORT_S * 1000 + _OVERTIME_MS
    return (
        ""
        if result.error and result.error.code == "timeout" and not late
        else _explain(result, "not ended at its limit")
    )


def _find_forged_end(result: RunResult) -> str:
    """The first process of a namespace can't be killed from inside; if another runner is killed, its report must be
    lost."""
    if result.ok:
        return _explain(result, "it is ok")
    ended = result.error is not None and result.error.code == "killed"
    return _explain(result, "files came without their runner") if ended and result.artifacts else ""


def _find_forged_answer(result: RunResult) -> str:
    spoiled = result.error is not None and result.error.code not in ("timeout", "program_error")
    return _explain(result, "the connection to the supervisor was reached") if spoiled else ""


def _find_daemon(result: RunResult, mark: str) -> str:
    if not result.ok:
        return _explain(result, "the run failed")
    left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and mark in _load_command(entry)]
    return f"process {left[0]} of the host is still running" if left else ""


def _load_command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _explain(result: RunResult, problem: str) -> str:
    message = result.error.message if result.error else ""
    return f"{problem}: {describe(result)}. {message}".strip()


def build_output_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for all tricks, and for each bad name a run that must be refused."""
    tricks = "\n".join(f"try: {text}\nexcept OSError as e: print(e)" for _, text in _TRICKS.values())
    paths = tuple(path for path, _ in _TRICKS.values())
    return (
        Trial(
            attempts=((OUTPUTS, "make the run lose its valid outputs"), *((OUTPUTS, name) for name in _TRICKS)),
            program=_HEAD + tricks,
            judge=_judge_tricks,
            outputs=(*_GOOD, *paths),
        ),
        *(_build_name(name, path) for name, path in _REFUSED_NAMES.items()),
    )


def _judge_tricks(result: RunResult) -> Iterable[Finding]:
    came = {artifact.filepath for artifact in result.artifacts}
    lost = set(_GOOD) - came
    yield find_for(OUTPUTS, "make the run lose its valid outputs", f"not {sorted(lost)}" if lost else "", "delivered")
    for name, (path, _) in _TRICKS.items():
        reason = result.error.message if result.error else ""
        is_reported = f"{path} (" in reason
        problem = "it was delivered" if path in came else "" if is_reported else f"not reported: {describe(result)}"
        yield find_for(OUTPUTS, name, problem, _reason_for(path, reason))


def _reason_for(path: str, message: str) -> str:
    return message.partition(f"{path} (")[2].partition(")")[0]


def _build_name(name: str, path: str) -> Trial:
    def judge(result: RunResult) -> tuple[Finding, ...]:
        refused = result.error is not None and result.error.code == "bad_request"
        return (find_for(OUTPUTS, name, "" if refused else f"it was run: {describe(result)}", "bad_request"),)

    return Trial(((OUTPUTS, name),), "pass", judge, outputs=(path,))


class NeighbourLost(Exception):
    """The other run did not start."""


@dataclass(slots=True)
class _NeighbourTools:
    """The worker's side of the neighbour's tools."""

    nonce: asyncio.Future[str]
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, call: GatewayCall) -> ToolReply:
        if call.tool_id == "battery_tools.report":
            if not self.nonce.done():
                self.nonce.set_result(str(call.arguments["nonce"]))
        else:
            await self.release.wait()
        return ToolReply(call.id, True)


@dataclass(slots=True)
class Neighbour:
    """A run that stays until `leave`."""

    nonce: str
    _tools: _NeighbourTools
    _running: asyncio.Task[RunResult]

    async def leave(self) -> Finding:
        """Let it end; returns whether it ended undisturbed."""
        self._tools.release.set()
        result = await self._running
        well = result.ok and result.user_out_tail == "undisturbed\n"
        return find_for(*ATTEMPT, "" if well else f"it ended with {describe(result)}", describe(result))


@contextlib.asynccontextmanager
async def open_neighbour(sandbox: Sandbox, mark: str) -> AsyncGenerator[Neighbour]:
    """A live run with `mark` in its program, its files and its socket name. Raises NeighbourLost."""
    tools = _NeighbourTools(asyncio.get_running_loop().create_future())
    request = _build_request(_PROGRAM.format(mark=mark, nonce=NONCE), mark)
    running = asyncio.create_task(sandbox.run(request, tools.answer))
    try:
        yield Neighbour(await _take_nonce(tools, running), tools, running)
    finally:
        await end_tasks(running)
        discard_errors(running)


async def load_ended_nonce(sandbox: Sandbox) -> str:
    """The nonce of a run that has ended. Raises NeighbourLost."""
    tools = _NeighbourTools(asyncio.get_running_loop().create_future())
    result = await sandbox.run(_build_request(_REPORT), tools.answer)
    if not tools.nonce.done():
        raise NeighbourLost(result.report_text)
    return tools.nonce.result()


async def _take_nonce(tools: _NeighbourTools, running: asyncio.Task[RunResult]) -> str:
    await asyncio.wait((tools.nonce, running), timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
    if not tools.nonce.done():
        raise NeighbourLost(running.result().report_text if running.done() else f"not started within {_START_S} s")
    return tools.nonce.result()


def _build_request(program: str, mark: str = "") -> RunRequest:
    return RunRequest(
        execution_id=f"battery-{secrets.token_hex(8)}",
        turn_id="turn_battery",
        program=program,
        contract=(ContractItem(mark),) if mark else (),
        timeout_s=_STAY_S,
        profile=BATTERY_PROFILE,
        capability=_TOOLS,
    )
