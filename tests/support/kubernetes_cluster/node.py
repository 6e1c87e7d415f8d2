"""A node that runs the containers of a Pod with bubblewrap: users, mounts, process namespaces, one shared network.

Both images are the code of this checkout. Limits of memory and processor are not enforced.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyseccomp

from exec_supervisor.broker.seccomp_profile import build_node_profile
from exec_supervisor.local.process import load_children

ROOT = Path(__file__).parents[3]
MISSING_IMAGE = "everturn/no-such-image:latest"
SOURCES = ("libs/common/src/everturn", "services/exec-supervisor/src/exec_supervisor", "services/executor/src/executor")
PACKAGES = "/opt/everturn"
RUN = f"""
import ctypes, os, runpy, struct, sys
code = ctypes.create_string_buffer(os.read(int(sys.argv.pop(1)), 1 << 16))
program = struct.pack("HxxxxxxP", (len(code) - 1) // 8, ctypes.addressof(code))
assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
sys.path.append({PACKAGES!r})
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""
"""Loads the filter, as a container runtime does once the rights are gone, and then runs the module that is named."""
ENTRYPOINTS = {"supervisor": ["exec_supervisor", "pair"], "executor": ["executor", "--line", "/run/everturn/line.sock"]}
WORK_FOLDERS = {"supervisor": "/run/everturn", "executor": "/workspace/work"}
SHARED = "sockets"
LOG_BYTES = 2048
PULL_S = 0.2

Json = dict[str, Any]


@dataclass
class RunningPod:
    """The processes of a Pod by the names of their containers, and its volumes."""

    folder: Path
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


class Node:
    """`report` is called with the status of a Pod whenever it has changed. `unschedulable` is what a scheduler without
    room says, and `writable_root` a fault of the container runtime. `pulls` are the problems with MISSING_IMAGE, each
    as reason and message for `PULL_S`. The last one stays, unless its reason is empty: then the image is there.
    `beside` is the state of the other container meanwhile."""

    def __init__(self, report: Any) -> None:
        self._report = report
        self._python = os.path.realpath(sys.executable)
        self.running: dict[str, RunningPod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.unschedulable = ""
        self.writable_root = False
        self.beside: Json = {"waiting": {"reason": "ContainerCreating"}}
        self.pulls: Sequence[tuple[str, str]] = (("ErrImageNeverPull", "it is not present"),)
        self._code = Path(tempfile.mkdtemp(prefix="everturn-code-"))
        for source in SOURCES:
            shutil.copytree(ROOT / source, self._code / Path(source).name, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["chmod", "-R", "a+rX", str(self._code)], check=True)

    def close(self) -> None:
        shutil.rmtree(self._code)

    def begin(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, pod))

    async def end(self, name: str) -> None:
        """Kill everything of a Pod and wait for it."""
        if task := self._tasks.pop(name, None):
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    def kill(self, name: str, container: str, reason: str = "Error") -> None:
        """Kill a container, as for a `reason` such as OOMKilled."""
        pod = self.running[name]
        pod.reasons[container] = reason
        kill_container(pod.processes[container])

    async def _run(self, name: str, pod: Json) -> None:
        if self.unschedulable:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self._report(name, "Pending", [], [condition | {"message": self.unschedulable}])
            await asyncio.Event().wait()
        containers = pod["spec"]["containers"]
        if any(entry["image"] == MISSING_IMAGE for entry in containers):
            await self._pull(name, containers)
        folder = Path(tempfile.mkdtemp(prefix="everturn-pod-"))
        running = self.running[name] = RunningPod(folder)
        try:
            share_folder(folder / SHARED, pod["spec"]["securityContext"]["fsGroup"])
            for container in containers:
                running.processes[container["name"]] = await self._start(container, pod, folder)
            logs = {role: asyncio.create_task(read_log(process)) for role, process in running.processes.items()}
            statuses = {entry["name"]: build_status(entry, {"running": {}}) for entry in containers}
            self._report(name, "Running", [*statuses.values()], [])
            for log in asyncio.as_completed(logs.values()):
                await log
                for entry in containers:
                    role = entry["name"]
                    if logs[role].done() and "running" in statuses[role]["state"]:
                        state = build_end(
                            await running.processes[role].wait(), logs[role].result(), running.reasons.get(role)
                        )
                        statuses[role] = build_status(entry, {"terminated": state})
                ended = all("terminated" in entry["state"] for entry in statuses.values())
                failed = ended and any(entry["state"]["terminated"]["exitCode"] for entry in statuses.values())
                phase = "Failed" if failed else "Succeeded" if ended else "Running"
                self._report(name, phase, [*statuses.values()], [])
        finally:
            # Supervisors first, which would otherwise report that their executors are gone.
            for process in reversed(running.processes.values()):
                kill_container(process)
            for process in running.processes.values():
                await process.wait()
            shutil.rmtree(folder)
            del self.running[name]

    async def _pull(self, name: str, containers: list[Json]) -> None:
        """Fail as `pulls` says."""
        for reason, message in self.pulls:
            if not reason:
                return
            waiting = {"waiting": {"reason": reason, "message": message}}
            states = [waiting if entry["image"] == MISSING_IMAGE else self.beside for entry in containers]
            statuses = [build_status(*each) | {"imageID": ""} for each in zip(containers, states, strict=True)]
            self._report(name, "Pending", statuses, [])
            await asyncio.sleep(PULL_S)
        await asyncio.Event().wait()

    def _mount(self, mount: Json, pod: Json, folder: Path) -> list[str]:
        """The volume that the containers share is a folder of this machine; the others are memory with a limit."""
        [empty] = [entry["emptyDir"] for entry in pod["spec"]["volumes"] if entry["name"] == mount["name"]]
        assert empty["medium"] == "Memory"
        path, is_read_only = mount["mountPath"], mount.get("readOnly", False)
        if mount["name"] == SHARED:
            return ["--ro-bind" if is_read_only else "--bind", str(folder / SHARED), path]
        memory = ["--perms", "0777", "--size", empty["sizeLimit"], "--tmpfs", path]
        return [*memory, "--remount-ro", path] if is_read_only else memory

    async def _start(self, container: Json, pod: Json, folder: Path) -> asyncio.subprocess.Process:
        security, groups = container["securityContext"], str(pod["spec"]["securityContext"]["fsGroup"])
        command = ["bwrap", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--die-with-parent", "--cap-add", "ALL"]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for place in (PACKAGES, sys.base_prefix, *mounts):
            for parent in reversed(Path(place).parents):
                command += ["--perms", "0755", "--dir", str(parent)]
        for place in ("/usr", "/bin", "/lib", "/lib64", "/etc", sys.base_prefix):
            command += ["--ro-bind-try", place, place]
        command += ["--ro-bind", str(self._code), PACKAGES, "--proc", "/proc", "--dev", "/dev"]
        for mount in container["volumeMounts"]:
            command += self._mount(mount, pod, folder)
        filter_fd = open_filter(security["seccompProfile"])
        command += [] if self.writable_root else ["--remount-ro", "/"]
        command += ["--chdir", WORK_FOLDERS[container["name"]], "--clearenv", "--"]
        command += ["setpriv", "--reuid", str(security["runAsUser"]), "--regid", str(security["runAsGroup"])]
        command += ["--groups", groups, "--bounding-set=-all", "--inh-caps=-all"]
        command += [self._python, "-I", "-S", "-B", "-X", "utf8", "-c", RUN, str(filter_fd)]
        process = await asyncio.create_subprocess_exec(
            *command,
            *ENTRYPOINTS[container["name"]],
            *container["args"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(filter_fd,),
        )
        os.close(filter_fd)
        return process


def share_folder(folder: Path, group: int) -> None:
    """A folder for the group of the Pod, as a kubelet makes it."""
    folder.parent.chmod(0o755)
    folder.mkdir()
    os.chown(folder, 0, group)
    folder.chmod(0o2777)


def kill_container(process: asyncio.subprocess.Process) -> None:
    """Kill its first process, with which all others end. It has lost its tie to bubblewrap when it changed its user."""
    if process.returncode is None:
        for pid in load_children(process.pid) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def open_filter(profile: Json) -> int:
    """The filter of a container. What the default profile of a container runtime has in common with the one here: it is
    there, and it allows sockets."""
    rules: Any = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rules.add_rule(pyseccomp.ERRNO(1), "bpf")
    if profile["type"] == "Localhost":
        rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(1))
        for rule in build_node_profile()["syscalls"]:
            for name in rule["names"]:
                add_rule(rules, name, rule)
    descriptor = os.memfd_create("filter", 0)
    with open(descriptor, "wb", closefd=False) as file:
        rules.export_bpf(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def add_rule(rules: Any, name: str, rule: Json) -> None:
    """A rule of a profile as a container runtime adds it; calls that its library doesn't know are left out."""
    action = pyseccomp.ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else pyseccomp.ERRNO(rule["errnoRet"])
    if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0:
        rules.add_rule(action, name, *map(build_condition, rule.get("args", [])))


def build_condition(condition: Json) -> Any:
    if condition["op"] == "SCMP_CMP_EQ":
        return pyseccomp.Arg(condition["index"], pyseccomp.EQ, condition["value"])
    return pyseccomp.Arg(condition["index"], pyseccomp.MASKED_EQ, condition["value"], condition["valueTwo"])


async def read_log(process: asyncio.subprocess.Process) -> str:
    """The end of what a container has written, at its end."""
    tail = b""
    while data := await process.stdout.read(1 << 16):
        tail = (tail + data)[-LOG_BYTES:]
    return tail.decode("utf-8", "replace")


def build_status(container: Json, state: Json) -> Json:
    image = {"name": container["name"], "image": container["image"], "imageID": f"sha256:{container['name']}"}
    return {**image, "state": state, "ready": False, "restartCount": 0}


def build_end(code: int, log: str, reason: str | None) -> Json:
    exit_code = 128 - code if code < 0 else code
    return {"exitCode": exit_code, "reason": reason or ("Error" if code else "Completed")} | (
        {"message": log} if code else {}
    )
