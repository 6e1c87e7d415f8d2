"""`everturn bundle new` and `everturn bundle check`: what is written, and what is found."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from chat_proc.bundle_commands.cases import read_cases
from chat_proc.bundle_commands.command import NotCreated, check_folder, parse_arguments, run_bundle, save_new
from chat_proc.bundles.bundle import read_folder
from chat_proc.bundles.manifest import MANIFEST, Manifest, read_manifest
from everturn.core.errors import Invalid
from everturn.core.identity import Role

LEFT_OUT = {"instructions", "config"}
"""Keys that have a better place: `instructions.md` and `react`."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "EVERTURN_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, manifest: str, instructions: str = "Be brief.") -> Path:
    (folder / "bundle.toml").write_text(manifest)
    (folder / "instructions.md").write_text(instructions)
    return folder


def list_keys(model: type[BaseModel], written: dict[str, Any]) -> set[str]:
    """The keys of the model that a table doesn't have, also those of tables inside."""
    missing: set[str] = set()
    for name, field in model.model_fields.items():
        if name not in written:
            missing.add(name)
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            missing |= {f"{name}.{key}" for key in list_keys(field.annotation, written[name])}
    return missing


@pytest.mark.parametrize(
    ("name", "title"), [("support", "Support"), ("night-desk_2", "Night desk 2"), ("TITLE", "Title")]
)
def test_a_new_bundle_is_an_agent_without_a_problem(tmp_path: Path, name: str, title: str) -> None:
    folder = save_new(name, tmp_path)

    checked = check_folder(folder)
    about = read_folder(folder).manifest
    assert (checked.problems, checked.warnings) == ((), ())
    assert (about.id, about.title, len(about.starters)) == (name, title, 2)
    assert about.instructions.startswith("You work for")
    assert sorted(path.name for path in folder.iterdir()) == ["bundle.toml", "instructions.md", "tests"]
    assert [case.name for case in read_cases(folder)] == ["hello"]


def test_the_comments_of_a_new_bundle_are_all_keys_that_exist(tmp_path: Path) -> None:
    text = (save_new("support", tmp_path) / MANIFEST).read_text()

    everything = re.sub(r"(?m)^#(?=\S)", "", text)

    assert list_keys(Manifest, tomllib.loads(everything)) == LEFT_OUT, "Show the key in template/bundle.toml."
    about = read_manifest(everything.encode())
    assert all(str(role) in text for role in Role)
    assert (about.limits.cost_usd, about.agent.workflow, set(about.models)) == (
        0.5,
        "loop",
        {"decision", "title", "summary", "synthesis", "selection", "fast", "reasoning"},
    )


@pytest.mark.parametrize(
    ("given", "hint"), [("tst", "Perhaps you mean test. "), ("rum", "Perhaps you mean run. "), ("x", "")]
)
def test_a_command_that_does_not_exist_is_refused(given: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments([given])

    printed = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"There is no command '{given}'. {hint}The commands are new, check, test, run.\n" in printed


@pytest.mark.parametrize("name", ["", "a b", "-x", ".hidden", "../x", "a/b", "übung", "x" * 129, "a\n"])
def test_a_name_that_cannot_be_an_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotCreated, match=r"can't be the id of an agent\. Use 1 to 128 letters"):
        save_new(name, tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "support").mkdir()
    (tmp_path / "file").write_text("")

    with pytest.raises(NotCreated, match=r"support already exists\. Choose another name"):
        save_new("support", tmp_path)
    with pytest.raises(NotCreated, match=r"file/support: Not a directory\."):
        save_new("support", tmp_path / "file")

    assert list((tmp_path / "support").iterdir()) == []
    assert (save_new("support", tmp_path / "absent") / "bundle.toml").is_file()


def test_all_problems_are_printed_with_their_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, 'id = "a"\nicons = "x"\n[limits]\ntokens = 0\n')

    status = run_bundle(parse_arguments(["check", str(folder)]))
    printed = capsys.readouterr().out
    also = run_bundle(parse_arguments(["check", str(folder), "--json"]))
    found = json.loads(capsys.readouterr().out)

    assert (status, also) == (1, 1)
    assert printed.splitlines() == [
        "error: bundle.toml, line 2: icons: Unknown key. Perhaps you mean icon.",
        "error: bundle.toml, line 4: limits.tokens: Input should be greater than or equal to 1.",
        f"{folder.name} has 2 errors.",
    ]
    assert (found["id"], found["folder"], found["warnings"]) == (None, str(folder), [])
    assert [(each["file"], each["line"], each["key"]) for each in found["errors"]] == [
        ("bundle.toml", 2, "icons"),
        ("bundle.toml", 4, "limits.tokens"),
    ]


@pytest.mark.parametrize(
    ("manifest", "shown"),
    [
        ("id = 'a'\nid = 'b'\n", "bundle.toml, line 2: Cannot overwrite a value (at column 9)."),
        ("id = ", "bundle.toml: Invalid value; a text needs quotes (at end of document)."),
        ("", "bundle.toml: id: It is missing."),
        ('id = "a\n', "bundle.toml, line 1: A text has no closing quote (at column 8)."),
        (
            'id = "a"\n[tools]\nref = "a.py"\n',
            "bundle.toml, line 2: tools: Write [[tools]], with two brackets: there can be several.",
        ),
        (
            'id = "a"\n[mcp]\ncommand = "x"\n',
            "bundle.toml, line 3: mcp.command: Write the keys of a server below "
            "[mcp.NAME], where NAME is your name for it.",
        ),
        (
            'id = "a"\n[mcp.my-list]\ncommand = "x"\n',
            "bundle.toml, line 2: mcp.my-list: The name of a server begins "
            "with a letter and has at most 20 lower-case letters, digits and _.",
        ),
        (
            'id = "a"\n[mcp.x]\ncommand = ["x", "y"]\n',
            "bundle.toml, line 3: mcp.x.command: Write only the program as a text, and what follows it into args.",
        ),
        (
            'id = "a"\n[limits]\ncost_usd = "1"\n',
            "bundle.toml, line 3: limits.cost_usd: It must be a number, without quotes.",
        ),
        ('id = "a"\n[[tools]]\nref = "a.py"\n', "bundle.toml, line 2: tools 1.alias: It is missing."),
    ],
)
def test_a_manifest_that_is_no_table_is_a_problem(tmp_path: Path, manifest: str, shown: str) -> None:
    (problem,) = check_folder(write(tmp_path, manifest)).problems

    assert str(problem) == shown


def test_a_folder_without_a_manifest_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_bundle(parse_arguments(["check"])) == 1
    assert capsys.readouterr().out.startswith(f"error: The folder {tmp_path.name} has no bundle.toml.\n")


def test_a_skill_that_workers_refuse_is_a_problem(tmp_path: Path) -> None:
    folder = write(tmp_path, 'id = "a"')
    skill = folder / "skills" / "support" / "refunds"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: other\ndescription: Decides on refunds.\n---\nRead the order.\n")

    (problem,) = check_folder(folder).problems

    assert str(problem).startswith("skills/support/refunds/SKILL.md, line 2: ")


def test_what_is_likely_wrong_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, 'id = "a"\n[models]\ndecision = "openai:x"\nfast = "offline"\ntitle = "none:x"', "")

    status = run_bundle(parse_arguments(["check", str(folder)]))

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert lines[0] == "warning: bundle.toml: title: People see the id, a. Set a title."
    assert lines[1].startswith("warning: instructions.md: The file is empty, ")
    assert lines[2].startswith("warning: bundle.toml: starters: People see no suggested messages.")
    assert lines[3].startswith("warning: bundle.toml, line 3: models.decision: ")
    assert "openai:x names a model of openai, but OPENAI_API_KEY is not set." in lines[3]
    assert lines[4].startswith("warning: bundle.toml, line 5: models.title: ") and "no provider or endpoint" in lines[4]
    assert lines[5:] == ["a can be used."]


def test_a_model_with_a_key_or_of_an_endpoint_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, 'id = "a"\n[models]\ndecision = "openai:x"\nfast = "local:y"')
    config = tmp_path / "everturn.toml"
    config.write_text('[models.endpoints.local]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n')
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("EVERTURN_CONFIG", str(config))

    assert [warning.key for warning in check_folder(folder).warnings] == ["title", "starters"]

    config.write_text("x = 1")
    with pytest.raises(Invalid, match="Unknown key"):
        check_folder(folder)
