"""The built web client, read once: its page and its assets, with what was compressed when it was built."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everturn.errors import Invalid

PAGE: Final = "index.html"
ASSETS: Final = "assets"
"""The folder whose files have a hash of their content in their names."""
LICENSES: Final = "licenses.txt"
"""The one file among them without a hash: the licences of what the page contains."""
MAX_FILES: Final = 1_000
MAX_BYTES: Final = 64 * 1024 * 1024
CODINGS: Final = {"br": ".br", "gzip": ".gz"}
"""Content codings, the best first, and what the names of such files end with."""
CONTENT_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}


class BadBundle(Invalid):
    """WEB_DIST names no built web client."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file as it is sent: its bytes, and by content coding its bytes in that coding."""

    content_type: str
    content: bytes
    coded: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The page, and the assets by their path below `assets/`."""

    page: WebFile
    assets: Mapping[str, WebFile]


def load_bundle(folder: Path, *, max_files: int = MAX_FILES, max_bytes: int = MAX_BYTES) -> Bundle:
    """Everything that is served, in memory: what is not in it can't be asked for. Raises BadBundle."""
    try:
        contents = _load_contents(folder, max_files, max_bytes)
    except OSError as error:
        raise BadBundle(f"WEB_DIST={folder} can't be read: {error.strerror}.") from error
    files = {
        name: WebFile(CONTENT_TYPES.get(Path(name).suffix, "application/octet-stream"), content, _pick(contents, name))
        for name, content in contents.items()
        if not name.endswith(tuple(CODINGS.values()))
    }
    if PAGE not in files:
        raise BadBundle(f"WEB_DIST={folder} has no {PAGE}; build the web client, or leave WEB_DIST out.")
    assets = {name.removeprefix(f"{ASSETS}/"): file for name, file in files.items() if name.startswith(f"{ASSETS}/")}
    return Bundle(files[PAGE], assets)


def _load_contents(folder: Path, max_files: int, max_bytes: int) -> dict[str, bytes]:
    """The page's and the assets' bytes by their path; links are not followed."""
    found = [folder / PAGE, *(folder / f"{PAGE}{end}" for end in CODINGS.values()), *(folder / ASSETS).rglob("*")]
    files = [path for path in found if path.is_file() and not path.is_symlink()]
    if len(files) > max_files or sum(path.stat().st_size for path in files) > max_bytes:
        raise BadBundle(f"WEB_DIST={folder} has more than {max_files} files or {max_bytes} bytes.")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def _pick(contents: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    return {coding: contents[name + end] for coding, end in CODINGS.items() if name + end in contents}
