"""The part of the escape battery that plays tricks with the output folder, and with names of files."""

import unicodedata
from collections.abc import Iterable
from typing import Final

from chat_proc.sandbox.battery.findings import Finding, find_for
from chat_proc.sandbox.battery.hunger import describe
from chat_proc.sandbox.battery.trials import Trial
from chat_proc.sandbox.probes.attempts import Surroundings
from everturn.ports.sandbox import RunResult
from everturn.wire.execution import MAX_PATH_CHARS

OUTPUTS: Final = "outputs"
_COMPOSED: Final = unicodedata.normalize("NFC", "é.txt")
_DECOMPOSED: Final = unicodedata.normalize("NFD", "é.txt")
_LONGEST: Final = "n" * MAX_PATH_CHARS

_TRICKS: Final = {
    "bring out a file by a symbolic link": ("link", "os.symlink('/usr/lib/os-release', out + 'link')"),
    "bring out a file through a linked folder": ("folder/os-release", "os.symlink('/usr/lib', out + 'folder')"),
    "bring out a file by a hard link": ("hard", "os.link(os.__file__, out + 'hard')"),
    "have the runner wait at a pipe": ("pipe", "os.mkfifo(out + 'pipe')"),
    "have the runner wait at a socket": ("socket", "socket.socket(socket.AF_UNIX).bind(out + 'socket')"),
    "pass a folder for a file": ("dir", "os.mkdir(out + 'dir')"),
    "pass a device for a file": ("device", "os.mknod(out + 'device', 0o20600, os.makedev(1, 5))"),
    "bring out a file without the right to read it": ("shut", "write('shut'); os.chmod(out + 'shut', 0)"),
    "bring out a file of a locked folder": (
        "locked/a", "os.mkdir(out + 'locked'); write('locked/a'); os.chmod(out + 'locked', 0)",
    ),
    "bring out more bytes than may leave": ("sparse", "[hole(name) for name in ('hole', 'sparse')]"),
    "pass one spelling of a name for the other": (_COMPOSED, f"write({_DECOMPOSED!r})"),
    "pass the runner's own process for a file": ("self/mem", "os.symlink('/proc/self', out + 'self')"),
}  # fmt: skip
_GOOD: Final = ("good", _LONGEST, _DECOMPOSED, "hole")
_REFUSED_NAMES: Final = {
    "name a file above the folder": "../escaped",
    "name a file by an absolute path": "/workspace/escaped",
    "name a file with a line break": "a\nb",
    "name a file with more than 255 bytes": "é" * 128,
    "name a file with a character that turns text around": "a\u202eb",
    "name a file with a backslash": "..\\escaped",
}
_HEAD: Final = f"""
import os, socket
out = OUTPUT_DIR + "/"
def write(name): open(out + name, "w").write("text")
def hole(name): open(out + name, "wb").truncate(4 << 20)
write("good"); write({_LONGEST!r})
open(out + "evil\\nThe program ended well.", "w").close()
"""


def build_output_trials(around: Surroundings) -> tuple[Trial, ...]:
    """One program for all tricks, and for each bad name a run that must not be started."""
    tricks = "\n".join(f"try: {text}\nexcept OSError as e: print(e)" for _, text in _TRICKS.values())
    paths = tuple(path for path, _ in _TRICKS.values())
    return (
        Trial(
            attempts=((OUTPUTS, "deliver what is in order beside them"), *((OUTPUTS, name) for name in _TRICKS)),
            program=_HEAD + tricks,
            judge=_judge_tricks,
            outputs=(*_GOOD, *paths),
        ),
        *(_build_name(name, path) for name, path in _REFUSED_NAMES.items()),
    )


def _judge_tricks(result: RunResult) -> Iterable[Finding]:
    came = {artifact.filepath for artifact in result.artifacts}
    lost = set(_GOOD) - came
    yield find_for(OUTPUTS, "deliver what is in order beside them", f"not {sorted(lost)}" if lost else "", "delivered")
    for name, (path, _) in _TRICKS.items():
        reason = result.error.message if result.error else ""
        told = f"{path} (" in reason
        problem = "it came out" if path in came else "" if told else f"not told of: {describe(result)}"
        yield find_for(OUTPUTS, name, problem, _reason_for(path, reason))


def _reason_for(path: str, message: str) -> str:
    return message.partition(f"{path} (")[2].partition(")")[0]


def _build_name(name: str, path: str) -> Trial:
    def judge(result: RunResult) -> tuple[Finding, ...]:
        refused = result.error is not None and result.error.code == "bad_request"
        return (find_for(OUTPUTS, name, "" if refused else f"it was run: {describe(result)}", "bad_request"),)

    return Trial(((OUTPUTS, name),), "pass", judge, outputs=(path,))
