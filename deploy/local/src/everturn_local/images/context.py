"""The build context for the engine, as one tar: names, contents and modes, nothing else of this machine."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

Context = Mapping[str, Path]
"""Files by their path in the context, with `/`."""


def load_folder(folder: Path, prefix: str) -> Context:
    """All files under a folder, under `prefix`."""
    return {f"{prefix}/{path.relative_to(folder)}": path for path in sorted(folder.rglob("*")) if path.is_file()}


def build_digest(context: Context, facts: Mapping[str, str]) -> str:
    """A digest of what an image is built from: equal for equal files and facts."""
    digest = hashlib.sha256()
    for name, value in sorted(facts.items()):
        digest.update(f"{name}\0{value}\0".encode())
    for name, path in sorted(context.items()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def save_context(context: Context, target: BinaryIO) -> None:
    """Write the tar. Owner and times are always the same, so that the engine recognizes existing layers."""
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, path in sorted(context.items()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if path.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(data))
