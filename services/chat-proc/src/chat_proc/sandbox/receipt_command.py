"""`python -m chat_proc verify-receipt`: verifies a receipt of a run, and compares files with it. It needs no server."""

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chat_proc.sandbox.receipts import BadReceipt, read_public_keys, verify_receipt
from everturn.core.errors import Invalid

MAX_RECEIPT_BYTES: Final = 16 << 20
"""Limit of the file with the receipt; a step of the API also has the whole result."""
MAX_KEY_BYTES: Final = 1 << 20
MAX_FILES: Final = 10_000
_PROGRAM: Final = "the program"

FAILED: Final = 1


def parse_receipt_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of `python -m chat_proc verify-receipt`."""
    parser = argparse.ArgumentParser(
        prog="chat_proc verify-receipt", description="Verify who signed the receipt of a run, and what it says."
    )
    parser.add_argument("receipt", type=Path, metavar="FILE", help="the receipt, or the step of the API that has it")
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        action="append",
        dest="keys",
        metavar="PUBLIC",
        help="file with Ed25519 public keys in PEM; can be repeated",
    )
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="compare all files in this folder with the receipt, by content"
    )
    return parser.parse_args(arguments)


def run_verification(given: argparse.Namespace) -> int:
    """Print what the receipt says; 1 if a file is none of the run. Raises Invalid if it can't be trusted or read."""
    keys = read_public_keys((str(path), _load(path, MAX_KEY_BYTES).decode(errors="replace")) for path in given.keys)
    data = _load(given.receipt, MAX_RECEIPT_BYTES)
    try:
        payload = verify_receipt(data, keys)
        lines = _describe(payload)
        found = {} if given.files is None else compare_files(given.files, payload)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadReceipt(f"Its signature is valid, but a field is missing or wrong: {error}.") from error
    lines += [f"{_show(name)}: {role or 'NOT A FILE OF THIS RUN'}" for name, role in found.items()]
    if given.files is not None:
        lines += [
            f"not in {given.files}: {role}" for role in _list_roles(payload).values() if role not in found.values()
        ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return FAILED if None in found.values() else 0


def compare_files(folder: Path, payload: Mapping[str, Any]) -> dict[str, str | None]:
    """What each file under the folder was to the run, by its path there; None for a file that is none of the run's."""
    roles = _list_roles(payload)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files or len(files) > MAX_FILES:
        raise Invalid(f"{folder} has {len(files)} files; it must have 1 to {MAX_FILES}.")
    return {str(path.relative_to(folder)): roles.get(_hash(path)) for path in files}


def _list_roles(payload: Mapping[str, Any]) -> dict[str, str]:
    """The program and all files of the run, by SHA-256."""
    inputs = {file["sha256"]: f"input {file['path']}" for file in payload["inputs"]}
    outputs = {file["sha256"]: f"output {file['path']}" for file in payload["outputs"]}
    return {payload["program_sha256"]: _PROGRAM, **inputs, **outputs}


def _show(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _describe(payload: Mapping[str, Any]) -> list[str]:
    calls = ", ".join(f"{tool_id} {count} times" for tool_id, count in sorted(payload["calls"].items()))
    sandbox = payload["executor_image"] or payload["environment"] or "of unknown content"
    return [
        f"The receipt is genuine: run {payload['run_id']} of turn {payload['turn_id']} in {payload['conversation_id']}",
        f"  tenant and project  {payload['tenant']}/{payload['project']}",
        f"  time                {payload['began_at']} to {payload['ended_at']}",
        f"  outcome             {payload['outcome']}",
        f"  sandbox             {payload['backend'] or 'none'}, profile {payload['profile']}, {sandbox}",
        f"  program             sha256:{payload['program_sha256']}",
        f"  files               {len(payload['inputs'])} inputs, {len(payload['outputs'])} outputs",
        f"  limits hit          {', '.join(payload['limits_hit']) or 'none'}",
        f"  tool calls          {calls or 'none'}",
    ]


def _load(path: Path, max_bytes: int) -> bytes:
    """Raises Invalid."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}.") from error
    if len(data) > max_bytes:
        raise Invalid(f"{path} is longer than {max_bytes} bytes.")
    return data


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}.") from error
