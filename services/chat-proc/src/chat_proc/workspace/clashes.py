"""A path can't be a file and a folder at once, although nothing in a list of paths keeps it from being both."""

from collections.abc import Iterable


def find_clash(paths: Iterable[str]) -> str | None:
    """The first path that would have to be both, if there is one."""
    names = set(paths)
    for path in sorted(names):
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in names:
                return "/".join(parts[:end])
    return None
