"""The environment of every program, its folders, and preloaded imports."""

import dataclasses
import importlib
import json
import os
import sys
from typing import Final

from everturn.execution.messages import OUTPUT_DIR, PROXY_PORT, WORKDIR, Start

FONT_CACHE: Final = os.path.join(sys.prefix, "share", "everturn", "matplotlib")
"""Created with the environment: rebuilding the font list takes longer than most programs run."""

_MAX_THREADS: Final = 4
_CONFIGURATION: Final = ".config/matplotlib"
_TEMPORARY: Final = ".tmp"
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_WITH_EVERY_PRELOAD: Final = "executor.rpc"


_AUTHORITIES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")
"""Where systems keep the certificates of authorities in one file."""


def build_environment(workdir: str = WORKDIR, output_dir: str = OUTPUT_DIR, *, network: bool = False) -> dict[str, str]:
    """Variables that are the same for every program. Few threads: each costs address space and a process."""
    threads = str(min(os.cpu_count() or 1, _MAX_THREADS))
    return {
        "WORKDIR": workdir,
        "OUTPUT_DIR": output_dir,
        "AGENT_IO_CONTEXT": "limited",
        "HOME": workdir,
        "TMPDIR": os.path.join(workdir, _TEMPORARY),
        "PATH": f"{os.path.join(sys.prefix, 'bin')}:{_SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": os.path.join(workdir, _CONFIGURATION),
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        **(build_proxy_environment() if network else {}),
    }


def build_proxy_environment() -> dict[str, str]:
    """Variables by which HTTP clients find the proxy and the authorities of the system, which they trust."""
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    found = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy) | {"NO_PROXY": "localhost,127.0.0.1"}
    found |= {name.lower(): value for name, value in found.items()}
    if bundle := next((path for path in _AUTHORITIES if os.path.isfile(path)), None):
        found["SSL_CERT_FILE"] = bundle
    return found


def build_run_environment(start: Start) -> dict[str, str]:
    """Variables about the run: its id, the aliases of its tools, and its limits and outputs as JSON."""
    about = {
        "execution_id": start.execution_id,
        "tools": list(start.tools),
        "outputs": list(start.outputs),
        "limits": dataclasses.asdict(start.limits),
    }
    return {
        "EXECUTION_ID": start.execution_id,
        "RUNTIME_TOOL_MODULES": ",".join(dict.fromkeys(tool_id.partition(".")[0] for tool_id in start.tools)),
        "RUNTIME_GLOBALS_JSON": json.dumps(about, separators=(",", ":")),
    }


def save_folders(workdir: str = WORKDIR, font_cache: str = FONT_CACHE) -> None:
    """Create the folders that libraries require, with the font list if it was built ahead."""
    configuration = os.path.join(workdir, _CONFIGURATION)
    for folder in (configuration, os.path.join(workdir, _TEMPORARY)):
        os.makedirs(folder, exist_ok=True)
    for name in os.listdir(font_cache) if os.path.isdir(font_cache) else ():
        os.symlink(os.path.join(font_cache, name), os.path.join(configuration, name))


def import_ahead(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Import these modules, and then what tool calls need; returns the failures as sentences."""
    failures: list[str] = []
    for name in (*modules, _WITH_EVERY_PRELOAD) if modules else ():
        try:
            importlib.import_module(name)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            failures.append(f"{name} can't be imported: {type(error).__name__}: {error}"[:500])
    return tuple(failures)
