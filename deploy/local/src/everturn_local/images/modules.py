"""Selects our Python files for an image: one package, and of the library only the modules that it imports."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE_MARK = "__init__.py"


def load_modules(package: Path, *, without: Sequence[str], library: Path) -> Mapping[str, Path]:
    """Files by their path below an import folder, such as `everturn/execution/framing.py`.

    These are all of `package` except its parts `without`, and everything they import of `library`, directly or
    indirectly.
    """
    own = [path for path in sorted(package.rglob("*.py")) if path.relative_to(package).parts[0] not in without]
    waiting, found = list(own), set(own)
    while waiting:
        for path in _load_imported(waiting.pop(), library):
            if path not in found:
                found.add(path)
                waiting.append(path)
    roots = {True: package.parent, False: library.parent}
    return {str(path.relative_to(roots[path.is_relative_to(package)])): path for path in sorted(found)}


def _load_imported(file: Path, library: Path) -> Iterator[Path]:
    for name in find_imports(file.read_text()):
        top, *parts = name.split(".")
        if top == library.name:
            yield from _load_places(library, parts)


def _load_places(library: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files that importing the name runs: each package on the way, and finally a package, a module or nothing."""
    places = [library / PACKAGE_MARK]
    for depth in range(1, len(parts) + 1):
        place = library.joinpath(*parts[:depth])
        places += [place / PACKAGE_MARK, place.with_suffix(".py")]
    yield from (place for place in places if place.is_file())


def find_imports(source: str) -> set[str]:
    """Every name that a module can import: for `from a import b` that is `a` and, if b is a module, `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found
