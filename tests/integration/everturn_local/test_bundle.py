"""`everturn bundle run`: which bundle the platform is started with."""

import os
from pathlib import Path

import pytest

from everturn_local.bundle import SHIPPED, build_example, choose_bundle, choose_shipped, run_bundle
from everturn_local.settings import LocalSettings

ENVIRONMENT = {"PATH": os.defpath}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a folder"
    made.mkdir()
    (made / "bundle.toml").write_text('id = "support"\n')
    return made


@pytest.fixture
def private(tmp_path: Path) -> Path:
    made = tmp_path / "private"
    made.mkdir()
    return made


def test_the_bundle_is_the_only_one_and_answers_by_default(
    folder: Path, private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = choose_bundle(folder, "support", private, {})

    bundles = Path(chosen["BUNDLES_DIR"])
    assert [path.resolve() for path in bundles.iterdir()] == [folder]
    assert chosen == {"BUNDLES_DIR": str(bundles), "EVERTURN_DEFAULT_BUNDLE": "support"}
    assert f"support answers by default; changes in {folder} are loaded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("starters", "example"),
    [
        (["Translate into French:", "Tell me … ", "Isn't it late?", "Hi."], """everturn chat 'Isn'"'"'t it late?'"""),
        (["Translate into French:"], "everturn chat 'What can you do?'"),
    ],
)
def test_the_suggested_command_sends_a_whole_message(starters: list[str], example: str) -> None:
    assert build_example(starters) == example


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[embed.bundles.support]\norigins = []\n[ai]\n", "support answers by default; changes"),
        ('ai.default_bundle = "support"', "support answers by default; changes"),
        ('[ai]\ndefault_bundle = "desk"', "desk answers by default, as EVERTURN_CONFIG says; choose support for a"),
    ],
)
def test_the_configuration_of_an_operator_is_kept(
    folder: Path, private: Path, config: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = private.with_name("everturn.toml")
    file.write_text(config)

    chosen = choose_bundle(folder, "support", private, {"EVERTURN_CONFIG": str(file), "BUNDLES_DIR": "/bundles"})

    assert "EVERTURN_CONFIG" not in chosen
    assert said in capsys.readouterr().out


def test_a_bundle_that_cannot_be_used_starts_nothing(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "bundle.toml").write_text("ids = 1")
    settings = LocalSettings(everturn_home=tmp_path / "home")

    assert run_bundle(["run", str(folder)], settings, environment=ENVIRONMENT) == 1

    assert "error: bundle.toml, line 1: ids: Unknown key." in capfd.readouterr().out
    assert not settings.everturn_home.exists()


def test_all_other_commands_are_those_of_the_worker(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = LocalSettings(everturn_home=tmp_path / "home")

    assert run_bundle([], settings, environment=ENVIRONMENT) == 0
    assert run_bundle(["new", "a b", "--dir", str(tmp_path)], settings, environment=ENVIRONMENT) == 2

    printed = capfd.readouterr()
    assert "new" in printed.out and "check" in printed.out
    assert "bundle: The bundle was not created. 'a b' can't be the id of an agent." in printed.err


def test_the_shipped_bundles_are_there_until_the_operator_has_others(tmp_path: Path) -> None:
    settings = LocalSettings(everturn_home=tmp_path / "home")

    assert choose_shipped(settings, {}) == {"BUNDLES_DIR": str(SHIPPED)}
    assert sorted(path.parent.name for path in SHIPPED.glob("*/bundle.toml")) == [
        "analyst",
        "coder",
        "desk",
        "librarian",
    ]

    assert choose_shipped(settings, {"BUNDLES_DIR": ""}) == {}
    (tmp_path / "home" / "bundles").mkdir(parents=True)
    assert choose_shipped(settings, {}) == {}


@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["analyst", "desk", "librarian"])
def test_the_tests_of_the_shipped_bundles_pass(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = LocalSettings(everturn_home=tmp_path / "home")

    status = run_bundle(["test", str(SHIPPED / name)], settings, environment=ENVIRONMENT)

    assert status == 0, capfd.readouterr().out
