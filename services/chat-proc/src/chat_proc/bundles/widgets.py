"""The widgets of a bundle: folders below `widgets/`, each with a page and the files that it uses."""

import html
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from chat_proc.bundles.manifest import BadBundle, Problem
from everturn.bundles.registry import WidgetListing

FOLDER: Final = "widgets"
PAGE: Final = "index.html"
MAX_WIDGETS: Final = 16
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_TITLE: Final = re.compile(r"<title>([^<]{1,80})</title>", re.IGNORECASE)
_HEAD_BYTES: Final = 4096
"""How much of a page is searched for its title."""


def list_widgets(files: Mapping[str, bytes]) -> tuple[WidgetListing, ...]:
    """The widgets among the files of a bundle, by name. Raises BadBundle."""
    pages: dict[str, bytes] = {}
    names: set[str] = set()
    for path, content in find_widget_files(files).items():
        name, slash, _ = path.partition("/")
        if not slash:
            raise BadBundle(Problem(f"A file must be in the folder of a widget, {FOLDER}/<name>/", f"{FOLDER}/{path}"))
        if not _NAME.fullmatch(name):
            raise BadBundle(
                Problem("The name of a widget has 1 to 40 lower-case letters, digits and -", f"{FOLDER}/{name}"[:80])
            )
        if len(content) > MAX_FILE_BYTES:
            raise BadBundle(
                Problem(f"A file of a widget may have at most {MAX_FILE_BYTES // 1024 // 1024} MiB", f"{FOLDER}/{path}")
            )
        names.add(name)
        if path == f"{name}/{PAGE}":
            pages[name] = content
    for name in sorted(names - pages.keys()):
        raise BadBundle(Problem(f"A widget needs the page {PAGE}", f"{FOLDER}/{name}"))
    if len(names) > MAX_WIDGETS:
        raise BadBundle(Problem(f"A bundle can have {MAX_WIDGETS} widgets; this one has {len(names)}", FOLDER))
    return tuple(WidgetListing(name, _read_title(page) or name) for name, page in sorted(pages.items()))


def find_widget_files(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The files below `widgets/`, by their path there."""
    return {
        PurePosixPath(path).relative_to(FOLDER).as_posix(): content
        for path, content in files.items()
        if path.startswith(f"{FOLDER}/")
    }


def _read_title(page: bytes) -> str:
    found = _TITLE.search(page[:_HEAD_BYTES].decode(errors="replace"))
    title = " ".join(html.unescape(found[1]).split()) if found else ""
    return title if title.isprintable() else ""
