"""Which of our files go into an image."""

from pathlib import Path

from everturn_local.images.modules import find_imports, load_modules


def save(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_imports_are_found_in_every_form_and_place():
    source = "import a.b\nfrom c import d\nif True:\n    from e.f import g as h\n"

    assert find_imports(source) == {"a.b", "c", "c.d", "e.f", "e.f.g"}


def test_a_package_comes_with_its_transitive_imports_only(tmp_path: Path):
    save(
        tmp_path,
        {
            "lib/__init__.py": "",
            "lib/wire/__init__.py": "",
            "lib/wire/frames.py": "from lib import errors",
            "lib/errors.py": "import json",
            "lib/database.py": "import asyncpg",
            "runner/__init__.py": "",
            "runner/main.py": "from lib.wire.frames import Frame",
            "runner/engine/calls.py": "from lib import database",
        },
    )

    found = load_modules(tmp_path / "runner", without=("engine",), library=tmp_path / "lib")

    ours = {"runner/__init__.py", "runner/main.py"}
    assert set(found) == ours | {"lib/__init__.py", "lib/wire/__init__.py", "lib/wire/frames.py", "lib/errors.py"}
    assert found["lib/errors.py"] == tmp_path / "lib" / "errors.py"
