"""Digests determine which steps are repeated."""

from pathlib import Path

import pytest

from everturn_local.web.stamps import Stamps, build_packages_digest, build_sources_digest


@pytest.fixture
def web(tmp_path: Path) -> Path:
    for name in ("package.json", "package-lock.json", ".npmrc", "src/a.ts", "dist/a.js", "node_modules/b/c.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_step_is_done_until_forgotten_or_uninstalled(web: Path) -> None:
    Stamps(web).save("build", "1")
    Stamps(web).save("check", "2")
    Stamps(web).forget("check")

    assert Stamps(web).is_done("build", "1")
    assert not Stamps(web).is_done("build", "2")
    assert not Stamps(web).is_done("check", "2")

    (web / "node_modules" / ".everturn.json").unlink()
    assert not Stamps(web).is_done("build", "1")
    Stamps(web).forget("build")


def test_a_broken_record_is_none(web: Path) -> None:
    (web / "node_modules" / ".everturn.json").write_text("{")

    assert not Stamps(web).is_done("build", "1")


@pytest.mark.parametrize(
    ("name", "changes_sources", "changes_packages"),
    [
        ("src/a.ts", True, False),
        ("src/new.ts", True, False),
        ("package-lock.json", True, True),
        (".npmrc", True, True),
        ("dist/a.js", False, False),
        ("node_modules/b/c.js", False, False),
    ],
)
def test_generated_files_do_not_change_the_digest(
    web: Path, name: str, changes_sources: bool, changes_packages: bool
) -> None:
    sources, packages = build_sources_digest(web), build_packages_digest(web)

    (web / name).write_text("other")

    assert (build_sources_digest(web) != sources) == changes_sources
    assert (build_packages_digest(web) != packages) == changes_packages
