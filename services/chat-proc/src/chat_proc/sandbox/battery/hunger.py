"""The part of the escape battery that asks for too much: each program meets a limit, and the envelope names it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from chat_proc.sandbox.battery.findings import Finding, find_for
from chat_proc.sandbox.battery.trials import Judge, Trial
from chat_proc.sandbox.probes.attempts import Surroundings
from everturn.ports.sandbox import RunResult
from everturn.wire.execution import OUTPUT_DIR, WORKDIR, LimitName
from everturn.wire.profiles import BATTERY_LIMITS

LIMITS: Final = "limits"
LIFETIME: Final = "end of a run"
_SHORT_S: Final = 1.0
_ENOUGH_S: Final = 20.0
_PATIENT_S: Final = 120.0
"""For what must use up processor time first: on a busy machine it waits for that much longer than it computes."""
_OVERTIME_MS: Final = 4000
"""What a stopped run may take on top of its time: 2 s by contract, and the slowness of a busy machine."""
_KEPT: Final = "kept"
_KEEP: Final = f"open(OUTPUT_DIR + '/{_KEPT}', 'w').write('kept')\n"

Problem = Callable[[RunResult], str]

_MEMORY: Final = {
    "take memory bit by bit": "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
    "take memory at once": "x = bytearray(3 << 30)",
    "take memory by forking": """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(3)
        os._exit(0)
for _ in range(8): os.wait()
""",
    "take shared memory": "import mmap\nm = mmap.mmap(-1, 600 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1",
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
    "make too many files": ("disk", "for number in range(100000): open(str(number), 'w').close()"),
    "make a file with a hole of a terabyte": ("file_size", "open('big', 'wb').truncate(1 << 40)"),
    "write a file that is too large": (
        "file_size",
        "with open('big', 'wb') as file:\n    for _ in range(100): file.write(bytes(1 << 20)); file.flush()",
    ),
    "open too many files": ("open_files", "kept = [open('/dev/null') for _ in range(100000)]"),
    "compute for too long": ("cpu", "while True: pass"),
}
_ENDLESS: Final = {
    "loop without end": "while True: pass",
    "ignore every signal and fork away": """
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
    "fork without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
}
_STOP_RUNNER: Final = """
import os, signal, time
for pid in {os.getppid(), 1}: os.kill(pid, signal.SIGSTOP)
time.sleep(60)
"""
_END_RUNNER: Final = _KEEP + "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(0.2)\nos.kill(-1, 9)"
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


def build_hungry_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for each limit. The daemon carries the text by which it would be found among the host's processes."""
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
        _build(LIFETIME, "end the runner", _END_RUNNER, _find_forged_end, _SHORT_S),
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
    """What ended a run, in a few words."""
    code = result.error.code if result.error else "ended by itself"
    limits = f", limits: {', '.join(result.limits_hit)}" if result.limits_hit else ""
    return f"{code} after {result.duration_ms} ms{limits}"


def _wants_limit(limit: LimitName) -> Problem:
    return lambda result: (
        "" if not result.ok and limit in result.limits_hit else _tell(result, f"limit {limit} not named")
    )


def _wants_memory(name: str) -> Problem:
    def find(result: RunResult) -> str:
        if "memory" not in result.limits_hit:
            return _tell(result, "limit memory not named")
        return "" if "by forking" in name or not result.ok else _tell(result, "the program went on")

    return find


def _find_flood_problem(result: RunResult) -> str:
    if not result.ok or "stdout" not in result.limits_hit:
        return _tell(result, "limit stdout not named")
    return "" if len(result.user_out_tail) <= BATTERY_LIMITS.tail_chars else "more than the tail was kept"


def _find_overtime(result: RunResult) -> str:
    if result.error is None or result.error.code != "timeout" or result.duration_ms > _SHORT_S * 1000 + _OVERTIME_MS:
        return _tell(result, "not ended at its limit")
    return "" if [artifact.filepath for artifact in result.artifacts] == [_KEPT] else "what it wrote is lost"


def _find_stopped_problem(result: RunResult) -> str:
    late = result.duration_ms > _SHORT_S * 1000 + _OVERTIME_MS
    return (
        "" if result.error and result.error.code == "timeout" and not late else _tell(result, "not ended at its limit")
    )


def _find_forged_end(result: RunResult) -> str:
    """The first process of a namespace can't be ended from inside; any other runner takes its word with it."""
    if result.ok:
        return _tell(result, "it is ok")
    ended = result.error is not None and result.error.code == "killed"
    return _tell(result, "files came without their runner") if ended and result.artifacts else ""


def _find_forged_answer(result: RunResult) -> str:
    spoiled = result.error is not None and result.error.code not in ("timeout", "program_error")
    return _tell(result, "the line to the supervisor was reached") if spoiled else ""


def _find_daemon(result: RunResult, mark: str) -> str:
    if not result.ok:
        return _tell(result, "the run failed")
    left = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and mark in _load_command(entry)]
    return f"process {left[0]} of the host lives on" if left else ""


def _load_command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _tell(result: RunResult, problem: str) -> str:
    message = result.error.message if result.error else ""
    return f"{problem}: {describe(result)}. {message}".strip()
