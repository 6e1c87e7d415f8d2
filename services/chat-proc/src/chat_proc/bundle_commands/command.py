"""The commands `bundle new`, `bundle check` and `bundle test` of an author."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Final

from pydantic import TypeAdapter, ValidationError

from chat_proc.bundle_commands.cases import FOLDER as TESTS
from chat_proc.bundle_commands.cases import read_cases
from chat_proc.bundle_commands.code import check_code, place_problem
from chat_proc.bundle_commands.testing import run_test
from chat_proc.bundles.bundle import Bundle, read_folder
from chat_proc.bundles.host.environments import REQUIREMENTS
from chat_proc.bundles.manifest import INSTRUCTIONS, MANIFEST, BadBundle, BundleId, Problem, find_line
from chat_proc.bundles.widgets import FOLDER as WIDGETS
from chat_proc.catalog.mcp_servers import TOOLS_DESCRIPTOR
from chat_proc.models.providers import BadModelSetting, read_choice
from chat_proc.settings import ModelSettings, OperatorConfig, load_config
from chat_proc.skills.reader import load_platform_skills, read_skills
from everturn.core.errors import Invalid
from everturn_sdk.workflows import WORKFLOW

HAS_PROBLEMS: Final = 1
COMMANDS: Final = ("new", "check", "test", "run")
"""`run` is a command of the installation: it runs a whole platform."""
FIRST_CASE: Final = f"{TESTS}/hello.toml"
SKILLS: Final = "skills"
KNOWLEDGE: Final = "knowledge"
_NAMES: Final = frozenset(
    {MANIFEST, INSTRUCTIONS, TOOLS_DESCRIPTOR, REQUIREMENTS, WORKFLOW, SKILLS, KNOWLEDGE, TESTS, WIDGETS}
)
"""The files and folders of a bundle that mean something by their names."""
_PACKAGE: Final = "chat_proc.bundle_commands"


class NotCreated(Invalid):
    """The bundle was not created."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found in a folder. Workers refuse it for its `problems`; `warnings` are legal but likely wrong."""

    bundle: Bundle | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    parts: tuple[str, ...] = ()
    """What it has besides its texts, such as `3 tools`."""
    tools: tuple[str, ...] = ()
    """The ids of its own tools, and of those of the MCP servers that were started."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse what follows `bundle`. Exits with 2 if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="everturn bundle",
        description="Create, check and test agents of your own. A bundle is the folder that defines an agent.",
        epilog="`everturn bundle run [FOLDER]` runs a platform with a bundle, where Everturn is installed with `make`.",
    )
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    new = commands.add_parser("new", help="create a bundle from an example")
    new.add_argument("name", metavar="NAME", help="the id of the agent and the name of its folder, such as support")
    new.add_argument("--dir", type=Path, default=Path(), help="where to create it (default: the current folder)")
    check = commands.add_parser(
        "check",
        help="report what is wrong with a bundle",
        description="Read a bundle as a worker does, and print everything that is wrong with it. Exit status: 0 if a "
        "worker accepts it, even with warnings; 1 if not; 2 if an argument or a setting is invalid.",
    )
    check.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="default: the current folder"
    )
    check.add_argument(
        "--install", action="store_true", dest="installs", help="install the libraries of requirements.txt first"
    )
    check.add_argument("--json", action="store_true", dest="as_json", help="print the result as JSON")
    test = commands.add_parser(
        "test",
        help="run the tests of a bundle",
        description="Run the tests in the folder `tests` of a bundle, without a platform and with scripted replies of "
        "the model. Exit status: 0 if all pass; 1 if one fails; 2 if the bundle or a file can't be used.",
    )
    test.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="default: the current folder"
    )
    test.add_argument("-k", default="", metavar="NAME", dest="name", help="only tests whose names contain NAME")
    test.add_argument("--json", action="store_true", dest="as_json", help="print one line of JSON for each test")
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        like = get_close_matches(arguments[0], COMMANDS, n=1)
        hint = f" Perhaps you mean {like[0]}." if like else ""
        parser.error(f"There is no command {arguments[0]!a}.{hint} The commands are {', '.join(COMMANDS)}.")
    return parser.parse_args(arguments)


def run_bundle(given: argparse.Namespace) -> int:
    """Run a command and return its exit status. Raises Invalid."""
    if given.action == "new":
        folder = save_new(given.name, given.dir)
        sys.stdout.write(
            f"Created {folder / MANIFEST}, {folder / INSTRUCTIONS} and {folder / FIRST_CASE} with an example. Replace "
            f"it with your own texts, then run: everturn bundle check {folder}\n"
        )
        return 0
    folder = given.folder.resolve()
    if given.action == "test":
        return run_test(folder, given.name, as_json=given.as_json)
    checked = check_folder(folder, installs=given.installs)
    sys.stdout.write((_build_json if given.as_json else _render)(folder, checked) + "\n")
    return HAS_PROBLEMS if checked.problems else 0


def save_new(name: str, parent: Path) -> Path:
    """Write the folder of a new bundle; nothing else is changed. Raises NotCreated."""
    try:
        TypeAdapter(BundleId).validate_python(name)
    except ValidationError as error:
        raise NotCreated(
            f"{name!a} can't be the id of an agent. Use 1 to 128 letters without accents, digits, ., _, @ and -, "
            "beginning with a letter or a digit."
        ) from error
    folder = parent / name
    title = name.replace("-", " ").replace("_", " ").capitalize()[:80]
    template = files(_PACKAGE).joinpath("template")
    try:
        folder.mkdir(parents=True)
        (folder / TESTS).mkdir()
        for file in (MANIFEST, INSTRUCTIONS, FIRST_CASE):
            text = template.joinpath(file).read_text(encoding="utf-8")
            (folder / file).write_text(text.replace("TITLE", title).replace("NAME", name), encoding="utf-8")
    except FileExistsError as error:
        raise NotCreated(f"{folder} already exists. Choose another name, or remove it first.") from error
    except OSError as error:
        raise NotCreated(f"{error.filename or folder}: {error.strerror}.") from error
    return folder


def check_folder(folder: Path, *, installs: bool = False) -> Checked:
    """Check a bundle as a worker does, and load its code. Raises BadConfig and ValidationError if the settings of this
    environment can't be used."""
    try:
        bundle = read_folder(folder)
        skills = read_skills(bundle.files, bundle.manifest.skills, load_platform_skills())
    except BadBundle as error:
        return Checked(None, error.problems)
    except Invalid as error:
        return Checked(None, (place_problem(error.detail),))
    settings = ModelSettings()
    config = load_config(settings.config)
    code = check_code(bundle, folder, skills, config, installs=installs)
    if code.problems:
        return Checked(None, tuple(code.problems), tuple(code.warnings))
    text = code.manifest_text
    warnings = [
        *_check_texts(bundle, folder, text),
        *_check_files(bundle, folder),
        *_check_models(bundle, text, settings, config),
        *code.warnings,
        *_check_cases(folder),
    ]
    return Checked(bundle, (), tuple(warnings), tuple(code.parts), tuple(code.tools))


def _check_texts(bundle: Bundle, folder: Path, text: str) -> list[Problem]:
    about = bundle.manifest
    warnings: list[Problem] = []
    if about.title is None:
        warnings.append(Problem(f"People see the id, {about.id}. Set a title", MANIFEST, None, "title"))
    if not about.instructions:
        what = "is empty" if (folder / INSTRUCTIONS).exists() else "is missing"
        warnings.append(Problem(f"The file {what}, so the agent knows nothing about its task", INSTRUCTIONS))
    if not about.starters:
        line = find_line(text, ["starters"])
        warnings.append(Problem("People see no suggested messages. Set one or more", MANIFEST, line, "starters"))
    return warnings


def _check_files(bundle: Bundle, folder: Path) -> list[Problem]:
    """The files and folders whose names are likely typing mistakes, so that nobody looks for them."""
    top = {path.name for path in folder.iterdir()}
    folded = {each.casefold(): each for each in _NAMES - top}
    warnings: list[Problem] = []
    for name in sorted(top - _NAMES):
        if like := get_close_matches(name.casefold(), folded, n=1, cutoff=0.85):
            warnings.append(Problem(f"Perhaps you mean {folded[like[0]]}, which the agent does not have", name))
    for path in bundle.files:
        if PurePosixPath(path).name == "SKILL.md" and not path.startswith(f"{SKILLS}/"):
            warnings.append(Problem(f"This skill is not used. Skills belong into the folder {SKILLS}", path))
    if KNOWLEDGE in top and not bundle.manifest.knowledge:
        why = f"{MANIFEST} has no [knowledge], so the agent does not know these documents"
        warnings.append(Problem(why, KNOWLEDGE))
    return warnings


def _check_cases(folder: Path) -> tuple[Problem, ...]:
    """The mistakes in files of tests, which workers don't read."""
    if not any((folder / TESTS).glob("*.toml")):
        return ()
    try:
        read_cases(folder)
    except BadBundle as error:
        return error.problems
    return ()


def _check_models(bundle: Bundle, text: str, settings: ModelSettings, config: OperatorConfig) -> list[Problem]:
    """The models that this environment has no provider or key for. A worker with the same would refuse the bundle; the
    author's need not have it."""
    problems: list[Problem] = []
    for role, name in bundle.manifest.models.items():
        try:
            read_choice(f"models.{role}", name, settings.model_environment, config.models.endpoints)
        except BadModelSetting as error:
            why = error.detail.removeprefix(f"models.{role}").lstrip(": ").rstrip(".")
            message = f"A worker with the variables of this terminal would refuse the bundle: {name} {why}"
            problems.append(Problem(message, MANIFEST, find_line(text, ["models", role]), f"models.{role}"))
    return problems


def _render(folder: Path, checked: Checked) -> str:
    lines = [f"error: {problem}" for problem in checked.problems]
    lines += [f"warning: {warning}" for warning in checked.warnings]
    if checked.bundle is None:
        count = len(checked.problems)
        lines.append(f"{folder.name} has {count} {'error' if count == 1 else 'errors'}.")
    else:
        has = f" It has {', '.join(checked.parts)}." if checked.parts else ""
        lines.append(f"{checked.bundle.id} can be used.{has}")
        of_servers: dict[str, list[str]] = {}
        for server, _, name in (tool.rpartition(".") for tool in checked.tools if tool.startswith("mcp.")):
            of_servers.setdefault(server, []).append(name)
        lines += [f"{server}: {', '.join(names)}" for server, names in of_servers.items()]
    return "\n".join(lines)


def _build_json(folder: Path, checked: Checked) -> str:
    bundle = checked.bundle
    result = {
        "folder": str(folder),
        "id": bundle and bundle.id,
        "digest": bundle and bundle.digest,
        "errors": [asdict(problem) for problem in checked.problems],
        "warnings": [asdict(warning) for warning in checked.warnings],
        "parts": checked.parts,
        "tools": checked.tools,
    }
    return json.dumps(result, ensure_ascii=False)
