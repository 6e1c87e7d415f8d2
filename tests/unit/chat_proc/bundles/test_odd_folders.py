"""Whatever one folder contains, the others are found, and the error is that of its own bundle."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.bundles import folders as looks
from chat_proc.bundles.bundle import Bundle, unpack
from chat_proc.bundles.folders import BundleFolders, Found
from chat_proc.bundles.manifest import MAX_SETTINGS_DEPTH, BadBundle, BundleProps, Manifest, read_manifest
from everturn.core.loops import LOOPS

GOOD = 'id = "good"\ninstructions = "Be brief."\n'
NESTED = 'id = "odd"\n[settings]\na = '


def scan(folder: Path, props: Mapping[str, BundleProps] | None = None, **files: bytes) -> Mapping[str, Found]:
    """What two looks find in a folder with the bundle `good`, and with the folder `odd` if there are files."""
    (folder / "good").mkdir()
    (folder / "good" / "bundle.toml").write_text(GOOD)
    for name, content in files.items():
        (folder / "odd").mkdir(exist_ok=True)
        (folder / "odd" / name.replace("_", ".")).write_bytes(content)
    folders = BundleFolders(folder, props or {}, "default")
    folders.scan()
    return folders.scan()


def find_odd(found: Mapping[str, Found]) -> Found:
    """The only bundle but `good` and the default one, which have nothing wrong."""
    (odd,) = find_others(found)
    return odd


def find_others(found: Mapping[str, Found]) -> list[Found]:
    assert (good := found["good"].bundle) is not None and good.manifest.instructions == "Be brief."
    assert found["default"].bundle is not None and found["good"].error == found["default"].error == ""
    return [each for bundle_id, each in found.items() if bundle_id not in ("good", "default")]


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        (NESTED + "[" * 900, "bundle.toml: Tables or lists are nested too deep."),
        (NESTED + "[" * 900 + "]" * 900, "bundle.toml: Tables or lists are nested too deep."),
        (
            NESTED + "[" * 90 + "]" * 90,
            "bundle.toml, line 2: settings: Tables and lists may be nested at most 32 deep.",
        ),
        (NESTED + "9" * 5_000, "bundle.toml: A value can't be read: Exceeds the limit (4300 digits)"),
        ('id = "odd"\n[settings]\n' + "a." * 50_000 + "a = 1", "bundle.toml, line 3: A key may have at most 64 parts."),
        ('id = "odd"\n[settings]\n' + '"\\"." . ' * 30_000, "bundle.toml, line 3: A key may have at most 64 parts."),
        ('id = "odd"\nx = """' + "." * 100_000 + '="""', "bundle.toml, line 2: x: Unknown key."),
        ('id = "odd"\n' + "\n".join(f"k{n} = 1" for n in range(20_000)), "bundle.toml, line 2: k0: Unknown key."),
        ('id = "\x00"', "bundle.toml, line 1: Illegal character '\\x00' (at column 7)."),
    ],
)
def test_a_manifest_that_is_hard_to_read_is_refused_soon(tmp_path: Path, manifest: str, error: str) -> None:
    began_s = time.monotonic()

    odd = find_odd(scan(tmp_path, bundle_toml=manifest.encode()))

    assert odd.bundle is None and odd.error.startswith(error) and len(odd.error) < 5_000
    assert time.monotonic() - began_s < 20


def test_settings_that_are_nested_as_deep_as_they_may_be_can_be_stored(tmp_path: Path) -> None:
    nested = "[" * MAX_SETTINGS_DEPTH + "]" * MAX_SETTINGS_DEPTH

    bundle = find_odd(scan(tmp_path, bundle_toml=(NESTED + nested).encode())).bundle

    assert bundle is not None and unpack(bundle.pack()) == bundle


def test_an_override_that_contradicts_the_author_is_the_error_of_its_bundle(tmp_path: Path) -> None:
    props = BundleProps.model_validate({"mcp": {"crm": {"url": "https://crm.example/mcp"}}})

    odd = find_odd(scan(tmp_path, {"odd": props}, bundle_toml=b'id = "odd"\n[mcp.crm]\ncommand = "python"\n'))

    assert odd.bundle is None and odd.error.startswith("With [bundles.odd] of the configuration file: mcp.crm")


def test_an_error_that_nobody_expected_costs_no_other_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> Bundle:
        if folder.name == "odd":
            raise MemoryError
        return read_folder(folder)

    read_folder = looks.read_folder
    monkeypatch.setattr(looks, "read_folder", fail)

    odd = find_odd(scan(tmp_path, bundle_toml=b'id = "odd"'))

    assert odd == Found(error="It could not be read (MemoryError). The log of the worker has the details.")
    assert not [loop for loop in LOOPS.failing if loop.startswith("bundle")]


def test_a_folder_that_cannot_be_entered_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "odd").symlink_to("x" * 300)

    assert find_odd(scan(tmp_path)).error.endswith("x: File name too long.")


def test_a_repaired_folder_has_no_error_any_more(tmp_path: Path) -> None:
    folders = BundleFolders(tmp_path, {}, "default")
    scan(tmp_path, bundle_toml=b'id = "odd"')
    folders.scan()
    (tmp_path / "odd" / "a\nb").touch()
    broken = folders.scan()["odd"]
    (tmp_path / "odd" / "a\nb").unlink()

    assert broken.bundle is not None and "not a usable name" in broken.error
    assert folders.scan()["odd"] == Found(broken.bundle)


def test_a_broken_folder_with_the_name_of_a_bundle_does_not_replace_it(tmp_path: Path) -> None:
    (tmp_path / "a-good").mkdir()
    (tmp_path / "a-good" / "bundle.toml").write_text(GOOD)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bundle.toml").write_text("id = ")
    (tmp_path / "a-good").rename(tmp_path / "z")
    (tmp_path / "a").rename(tmp_path / "good")

    found = BundleFolders(tmp_path, {}, "default").scan()["good"]

    assert found.bundle is not None and found.error.startswith("bundle.toml: Invalid value")


TEXTS = st.text(max_size=20) | st.sampled_from(["\x00", "\x1b[31m", "a" * 70_000, "../x", "\u202e"])
NUMBERS = st.integers() | st.floats() | st.integers(1, 5_000).map(lambda digits: 10**digits if digits < 4_000 else 7)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(st.sampled_from([*Manifest.model_fields]) | TEXTS, VALUES, max_size=6)
OVERRIDES: tuple[dict[str, Any], ...] = (
    {},
    {"react": {"codec": "json"}},
    {"mcp": {"a": {"command": "x"}}},
    {"icon": "x"},
)


def write_toml(value: Any) -> str:
    """As an inline value."""
    match value:
        case dict():
            return f"{{{', '.join(f'{write_toml(key)} = {write_toml(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(write_toml, value))}]"
        case str():
            return json.dumps(value.encode(errors="replace").decode(), ensure_ascii=False).replace("\x7f", "?")
        case bool():
            return str(value).lower()
        case _:
            return str(value)


@settings(max_examples=100)
@given(
    table=TABLES,
    raw=st.none() | st.binary(max_size=60),
    instructions=st.none() | st.binary(max_size=60),
    override=st.sampled_from(OVERRIDES),
    name=st.binary(min_size=1, max_size=60).filter(lambda name: not {0, ord("/")} & {*name} and name[:1] != b"."),
)
def test_whatever_a_folder_contains_the_others_are_found(
    table: dict[str, Any], raw: bytes | None, instructions: bytes | None, override: dict[str, Any], name: bytes
) -> None:
    written = {"id": "odd", **table}
    manifest = "\n".join(f"{write_toml(key)} = {write_toml(value)}" for key, value in written.items()).encode()
    files = {"bundle.toml": manifest if raw is None else raw, "instructions.md": instructions}
    with TemporaryDirectory() as folder:
        odd = os.path.join(folder.encode(), name if name not in (b"good", b"default") else b"odd")
        os.mkdir(odd)
        for file, content in files.items():
            if content is not None:
                Path(os.fsdecode(odd), file).write_bytes(content)

        props = {"odd": BundleProps.model_validate(override)} if override else {}
        for found in find_others(scan(Path(folder), props)):
            assert (found.bundle is None) == bool(found.error)
            if found.bundle is not None:
                assert unpack(found.bundle.pack()).digest == found.bundle.digest


def test_a_manifest_is_refused_as_a_bundle_for_any_reason() -> None:
    for manifest in (b"\xff", b"\x00", b"[" * 100_000, b"id = " + b"9" * 100_000):
        with pytest.raises(BadBundle):
            read_manifest(manifest)
