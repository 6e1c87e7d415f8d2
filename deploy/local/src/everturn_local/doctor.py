"""`make doctor`: one page of facts about this machine and this home, each ok or with a remedy."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from everturn.core.errors import EverturnError
from everturn.files.opening import open_objects
from everturn_local.escapes import BatteryFailed, Escapes, run_escapes
from everturn_local.home import Home, HomeInUseError, run_lock
from everturn_local.ports import CannotListen, is_port_free
from everturn_local.servers.postgres import load_postgres_binary
from everturn_local.servers.redis import load_redis_binary
from everturn_local.settings import REPOSITORY, LocalSettings

MIN_FREE_BYTES = 2 * 1024**3
PROBE_LIMIT_S = 20.0
SANDBOX_PROBE = ["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--uid", "1001", "--gid", "1001", "true"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact. `remedy` says what to do and is empty if there is no problem."""

    name: str
    fact: str
    remedy: str = ""
    rows: tuple[str, ...] = ()
    """Printed below the line."""


Check = Callable[[LocalSettings], Finding]


def run_doctor(settings: LocalSettings, *, environment: Mapping[str, str], walls: bool = True) -> int:
    """Print the page; returns the number of problems. With `walls` it also tries to escape from the sandboxes."""
    findings = [check(settings) for check in CHECKS]
    print(render_findings(findings), flush=True)
    if walls:
        tried = inspect_escapes(environment)
        print(render_findings(tried))
        findings += tried
    return sum(1 for finding in findings if finding.remedy)


def inspect_escapes(environment: Mapping[str, str]) -> list[Finding]:
    """Run the escape battery on every launcher that works here. A missing one is no problem: it runs no code."""
    try:
        return [build_finding(found) for found in run_escapes(environment)]
    except BatteryFailed as failure:
        return [Finding("escapes", f"the battery failed: {failure}", "report this with the command's output")]


def build_finding(found: Escapes) -> Finding:
    if found.unavailable:
        hint = f" (to install it: {found.remedy})" if found.remedy else ""
        return Finding("escapes", f"{found.launcher}: not tried. {found.unavailable}{hint}")
    remedy = "" if found.held == found.total else "set EXECUTION_MODE to another launcher or to off, and report this"
    return Finding(
        "escapes", f"{found.launcher}: {found.held} of {found.total} escape attempts denied", remedy, found.rows
    )


def render_findings(findings: list[Finding]) -> str:
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{'PROBLEM' if finding.remedy else 'ok':<8} {finding.name:<10} {finding.fact}")
        lines += [f"{'':<8} {'':<10}   {row}" for row in finding.rows]
        if finding.remedy:
            lines.append(f"{'':<8} {'':<10} -> {finding.remedy}")
    return "\n".join(lines)


def inspect_python(settings: LocalSettings) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", f"{version} at {sys.prefix}")


def inspect_postgres(settings: LocalSettings) -> Finding:
    return _inspect_binary("postgres", load_postgres_binary)


def inspect_redis(settings: LocalSettings) -> Finding:
    return _inspect_binary("redis", load_redis_binary)


def _inspect_binary(name: str, load: Callable[[], Path]) -> Finding:
    try:
        done = subprocess.run([load(), "--version"], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    except (EverturnError, OSError) as error:
        return Finding(name, f"its server does not start: {error}", "make setup")
    if done.returncode != 0:
        return Finding(name, f"its server does not start: {done.stderr.strip()}", "make setup")
    return Finding(name, done.stdout.strip())


def inspect_setpriv(settings: LocalSettings) -> Finding:
    found = shutil.which("setpriv")
    return Finding("setpriv", found or "not found", "" if found else "install the package util-linux")


def inspect_git(settings: LocalSettings) -> Finding:
    program = shutil.which("git")
    if program is None:
        fact = "not installed; bundles from git, and the histories of workspaces, are not available"
        return Finding("git", fact, "apt-get install git")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    return Finding("git", done.stdout.strip())


def inspect_sandbox(settings: LocalSettings) -> Finding:
    """Actually enters a sandbox: some systems have the program but forbid what it needs."""
    program = shutil.which("bwrap")
    if program is None:
        return Finding(
            "sandbox",
            "bubblewrap is not installed; without containers the code tool is not offered",
            "apt-get install bubblewrap",
        )
    done = subprocess.run([program, *SANDBOX_PROBE], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False)
    if done.returncode == 0:
        return Finding("sandbox", f"bubblewrap works ({program})")
    remedy = "allow user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return Finding("sandbox", f"bubblewrap fails: {done.stderr.strip()}", remedy)


def inspect_sandbox_python(settings: LocalSettings) -> Finding:
    python = REPOSITORY / ".venv-sandbox" / "bin" / "python"
    return Finding("libraries", f"for generated code: {python.parent.parent}", "" if python.exists() else "make setup")


def inspect_lock(settings: LocalSettings) -> Finding:
    """Whether the environments match the committed lock, according to the setup script."""
    script = REPOSITORY / "deploy" / "local" / "setup_environment.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, timeout=PROBE_LIMIT_S, check=False
    )
    return Finding("lock", done.stdout.strip() or done.stderr.strip(), "" if done.returncode == 0 else "make setup")


def inspect_disk(settings: LocalSettings) -> Finding:
    existing = next(
        path
        for path in (settings.everturn_home.absolute(), *settings.everturn_home.absolute().parents)
        if path.exists()
    )
    free = shutil.disk_usage(existing).free
    fact = f"{free / 1024**3:.1f} GiB free at {existing}"
    return Finding("disk", fact, "" if free >= MIN_FREE_BYTES else "free at least 2 GiB, or set EVERTURN_HOME")


def inspect_port(settings: LocalSettings) -> Finding:
    if _is_running(settings):
        return Finding("port", f"{settings.port}; a running platform uses this home")
    try:
        free = settings.port == 0 or is_port_free(settings.port, settings.host)
    except CannotListen as error:
        return Finding("port", str(error), "HOST=127.0.0.1 PORT=8090 make run")
    return Finding("port", f"{settings.port} is {'free' if free else 'in use'}", "" if free else "PORT=8090 make run")


def inspect_home(settings: LocalSettings) -> Finding:
    root = settings.everturn_home.absolute()
    if not root.exists():
        return Finding("home", f"{root} will be created at the first run")
    mode = root.stat().st_mode & 0o777
    return Finding("home", f"{root} (mode {mode:o})", f"chmod 700 {root}" if mode & 0o067 else "")


def inspect_objects(settings: LocalSettings) -> Finding:
    """Check the store: a folder of the home, or a write to the store that OBJECTS_URL names."""
    if not settings.objects_url:
        return Finding("objects", f"files in {Home(settings.everturn_home.absolute()).objects}")
    try:
        with open_objects(settings.objects_url) as store:
            asyncio.run(store.check())
            return Finding("objects", f"{store.kind} at {settings.objects_url}")
    except EverturnError as error:
        return Finding(
            "objects", str(error), "set OBJECTS_URL and its keys as described in docs/how-to/keep-files-in-s3.md"
        )


def _is_running(settings: LocalSettings) -> bool:
    home = Home(settings.everturn_home.absolute())
    if not home.lock_file.exists():
        return False
    try:
        with run_lock(home):
            return False
    except HomeInUseError:
        return True


CHECKS: list[Check] = [
    inspect_python,
    inspect_postgres,
    inspect_redis,
    inspect_setpriv,
    inspect_git,
    inspect_sandbox,
    inspect_sandbox_python,
    inspect_lock,
    inspect_disk,
    inspect_port,
    inspect_home,
    inspect_objects,
]
