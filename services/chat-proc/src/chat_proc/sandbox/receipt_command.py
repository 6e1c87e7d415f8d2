"""`python -m chat_proc verify-receipt`: verifies a receipt of a run, and compares files with it. It needs no server."""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NoReturn

from chat_proc.sandbox.receipts import BadReceipt, read_public_keys, verify_receipt
from everturn.core.errors import Invalid

MAX_RECEIPT_BYTES: Final = 16 << 20
"""Limit of the file with the receipt; a step of the API also has the whole result."""
MAX_KEY_BYTES: Final = 1 << 20
MAX_FILES: Final = 10_000
_PROGRAM: Final = "the program"

FAILED: Final = 3
"""The exit status if a file does not belong to the run; 1 and 2 are those of errors."""


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
    """Print what the receipt says; FAILED if a file does not belong to the run. Raises Invalid if the receipt can't be
    used."""
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
    """What each file under the folder was to the run, by its path there; None for one that does not belong to the run.

    Links to folders, pipes and the like do not belong to it. Raises Invalid, also if a folder can't be read.
    """
    roles = _list_roles(payload)
    try:
        files = sorted(islice(_walk(folder), MAX_FILES + 1))
        if not files or len(files) > MAX_FILES:
            raise Invalid(f"{folder} must have 1 to {MAX_FILES} files; it has {'none' if not files else 'more'}.")
        return {str(path.relative_to(folder)): roles.get(_hash(path)) if path.is_file() else None for path in files}
    except OSError as error:
        raise Invalid(f"{error.filename or folder}: {error.strerror}.") from error


def _walk(folder: Path) -> Iterator[Path]:
    """All that is under the folder but folders. Links to folders are not followed. Raises OSError."""
    for parent, folders, files in os.walk(folder, onerror=_refuse, followlinks=False):
        yield from (Path(parent, name) for name in files)
        yield from (path for name in folders if (path := Path(parent, name)).is_symlink())


def _refuse(error: OSError) -> NoReturn:
    raise error


def _list_roles(payload: Mapping[str, Any]) -> dict[str, str]:
    """The program and all files of the run, by SHA-256."""
    inputs = {file["sha256"]: f"input {file['path']}" for file in payload["inputs"]}
    outputs = {file["sha256"]: f"output {file['path']}" for file in payload["outputs"]}
    return {payload["program_sha256"]: _PROGRAM, **inputs, **outputs}


def _show(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _describe(payload: Mapping[str, Any]) -> list[str]:
    calls = ", ".join(f"{tool_id} {count} times" for tool_id, count in sorted(payload["calls"].items()))
    connections = ", ".join(
        f"{_show(each['host'])}:{each['port']} {each['opened']} opened, {each['sent_bytes']} bytes sent"
        for each in payload.get("connections", [])
    )
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
        f"  connections         {connections or 'none'}",
        "Nothing else in the receipt's file is signed.",
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
