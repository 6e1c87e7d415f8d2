"""The files `tests/*.toml` of a bundle: tests with scripted replies of the model, and what is expected of each turn."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StrictBool, ValidationError

from chat_proc.bundles.manifest import BadBundle, Problem, Section, explain_syntax, find_line
from chat_proc.workspace.text_search import Pattern
from everturn.core.errors import Invalid
from everturn.core.identity import Role
from everturn.core.settings import explain_errors, name_place, suggest_key

FOLDER: Final = "tests"
MAX_CASES: Final = 200
MAX_CASE_BYTES: Final = 256 * 1024
MAX_TURNS: Final = 50
MAX_REPLIES: Final = 100
MAX_ATTACHMENT_BYTES: Final = 16 * 1024 * 1024

_TURN_HEADER: Final = re.compile(r"\s*\[\[\s*turn\s*\]\]")


def _as_list(value: Any) -> Any:
    """One value can be written without the list."""
    return [value] if isinstance(value, str | Mapping) else value


def _as_reply(value: Any) -> Any:
    return {"reply": value} if isinstance(value, str) else value


def _as_call(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


def _as_file(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


def _check_pattern(text: str) -> str:
    try:
        Pattern(text)
    except Invalid as error:
        raise ValueError(error.detail.rstrip(".")) from error
    return text


def _check_turns(turns: tuple["CaseTurn", ...]) -> tuple["CaseTurn", ...]:
    # Not a limit of the field, which would also be reported if a turn has a mistake.
    if not 1 <= len(turns) <= MAX_TURNS:
        raise ValueError(f"A test has 1 to {MAX_TURNS} turns")
    return turns


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Patterns = Annotated[tuple[Annotated[str, AfterValidator(_check_pattern)], ...], BeforeValidator(_as_list)]


class ScriptedCall(Section):
    """A call in a reply of the model."""

    tool: str = Field(min_length=1)
    args: Mapping[str, JsonValue] = {}


class Reply(Section):
    """One reply of the model: a text, calls, or both. With `shows` it is kept for a request that contains these
    texts."""

    reply: str = ""
    calls: Annotated[
        tuple[Annotated[ScriptedCall, BeforeValidator(_as_call)], ...], BeforeValidator(_as_list), Field(max_length=50)
    ] = ()
    shows: Texts = ()
    then: Literal["stop", "length", "cut", "fail", "fail_for_good"] = "stop"


class ExpectedCall(Section):
    """A call that was made: each of `args` is equal, and the result contains these texts."""

    tool: str
    args: Mapping[str, JsonValue] = {}
    result_contains: Texts = ()
    status: Literal["ok", "error", "ambiguous", "cancelled"] | None = None


class ExpectedFile(Section):
    """A file that was made."""

    path: str
    contains: Texts = ()


class Expectations(Section):
    """What must hold after a turn. docs/how-to/test-a-bundle.md describes each key."""

    answer: str | None = None
    answer_contains: Texts = ()
    answer_matches: Patterns = ()
    calls: Annotated[tuple[Annotated[ExpectedCall, BeforeValidator(_as_call)], ...], BeforeValidator(_as_list)] = ()
    no_calls: Texts = ()
    files: Annotated[tuple[Annotated[ExpectedFile, BeforeValidator(_as_file)], ...], BeforeValidator(_as_list)] = ()
    sources: Texts = ()
    skills: Texts = ()
    knowledge: Texts = ()
    steps: Texts = ()
    approvals: Texts = ()
    problem: str | None = None
    outcome: Literal["completed", "capped", "stopped", "cut"] | None = None
    prompt_contains: Texts = ()


class CaseTurn(Section):
    """A message of the person and what follows. `attach` are paths below the folder `tests`."""

    user: str = Field(min_length=1)
    attach: Texts = ()
    model: Annotated[
        tuple[Annotated[Reply, BeforeValidator(_as_reply)], ...],
        BeforeValidator(_as_list),
        Field(max_length=MAX_REPLIES),
    ] = ()
    approve: StrictBool | None = None
    """What the person says to each call that needs approval; None if no call may need one."""
    expect: Expectations = Expectations()


class McpAnswer(Section):
    """The fixed answer of a tool of an MCP server: a text, a JSON object, or an error."""

    text: str = ""
    value: Mapping[str, JsonValue] | None = None
    error: str = ""


class CaseFile(Section):
    """The whole of a file."""

    about: str = ""
    roles: tuple[Role, ...] = (Role.REGISTERED,)
    settings: Mapping[str, JsonValue] = {}
    secrets: Mapping[str, str] = {}
    mcp_answers: Mapping[str, McpAnswer] = {}
    turn: Annotated[tuple[CaseTurn, ...], AfterValidator(_check_turns)]


@dataclass(frozen=True, slots=True)
class Case:
    """A file that was read. `file` is its path in the bundle, `text` its content, for finding lines."""

    name: str
    file: str
    text: str
    content: CaseFile

    def explain(self, message: str, *place: str | int) -> Problem:
        """A problem at a place of the file, such as `"turn", 0, "expect", "answer"`."""
        return Problem(message, self.file, locate(self.text, place), _name_key(place))


def read_cases(folder: Path, name: str = "") -> list[Case]:
    """The tests of the bundle in `folder` whose names contain `name`, in order. Raises BadBundle with all problems."""
    existing = sorted((folder / FOLDER).glob("*.toml"))
    if not existing:
        raise BadBundle(
            f"The folder {folder.name} has no test. Write one to {FOLDER}/hello.toml, as "
            "docs/how-to/test-a-bundle.md describes."
        )
    found = [path for path in existing if name in path.stem]
    if not found:
        names = ", ".join(path.stem for path in existing[:MAX_CASES])
        raise BadBundle(f"The folder {folder.name} has no test with {name!a} in its name. Its tests are: {names}.")
    if len(found) > MAX_CASES:
        raise BadBundle(f"The folder {FOLDER} has {len(found)} tests; {MAX_CASES} are allowed.")
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in found:
        try:
            cases.append(read_case(folder, path))
        except BadBundle as error:
            problems += error.problems
    if problems:
        raise BadBundle(*problems)
    return cases


def read_case(folder: Path, path: Path) -> Case:
    """Raises BadBundle with all problems of the file."""
    file = f"{FOLDER}/{path.name}"
    try:
        if not path.is_file():
            raise BadBundle(Problem("It is not a file", file))
        with path.open("rb") as opened:
            data = opened.read(MAX_CASE_BYTES + 1)
        if len(data) > MAX_CASE_BYTES:
            raise BadBundle(Problem(f"It is longer than {MAX_CASE_BYTES} bytes", file))
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise BadBundle(Problem(str(error.strerror), file)) from error
    except UnicodeDecodeError as error:
        raise BadBundle(Problem("The text is not valid UTF-8", file)) from error
    try:
        content = CaseFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadBundle(explain_syntax(file, error)) from error
    except RecursionError as error:
        raise BadBundle(Problem("Tables or lists are nested too deep", file)) from error
    except ValidationError as error:
        raise BadBundle(*_explain(file, text, error)) from error
    case = Case(path.stem, file, text, content)
    problems = [*_check_attachments(case, folder), *_check_replies(case)]
    if problems:
        raise BadBundle(*problems)
    return case


def _check_attachments(case: Case, folder: Path) -> list[Problem]:
    problems: list[Problem] = []
    for number, turn in enumerate(case.content.turn):
        for name in turn.attach:
            path = (folder / FOLDER / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                why = f"{name} is not in the bundle"
            elif not path.is_file():
                why = f"There is no file {FOLDER}/{name}"
            elif path.stat().st_size > MAX_ATTACHMENT_BYTES:
                why = f"{name} has more than {MAX_ATTACHMENT_BYTES // 2**20} MiB"
            else:
                continue
            problems.append(case.explain(why, "turn", number, "attach"))
    return problems


def _check_replies(case: Case) -> list[Problem]:
    problems: list[Problem] = []
    for name, answer in case.content.mcp_answers.items():
        if sum((bool(answer.text), answer.value is not None, bool(answer.error))) != 1:
            problems.append(case.explain("Give it a text, a value or an error", "mcp_answers", name))
        if name.count(".") != 2 or not name.startswith("mcp."):
            problems.append(case.explain('Name the tool as ["mcp.<alias>.<tool>"], with quotes', "mcp_answers", name))
    return problems


_KEYS: Final = frozenset(
    key
    for section in (CaseFile, CaseTurn, Reply, ScriptedCall, Expectations, ExpectedCall, ExpectedFile, McpAnswer)
    for key in section.model_fields
)


def _explain(file: str, text: str, error: ValidationError) -> list[Problem]:
    found = error.errors(include_input=False, include_url=False)
    problems: list[Problem] = []
    for each, explained in zip(found, explain_errors(error), strict=True):
        place = each["loc"]
        message = explained.partition(": ")[2] if place else explained
        if each["type"] == "extra_forbidden":
            message = suggest_key(str(place[-1]), _KEYS) or message
        problems.append(Problem(message, file, locate(text, place), _name_key(place)))
    return sorted(problems, key=lambda problem: problem.line or 0)


def _name_key(place: Sequence[str | int]) -> str:
    """A place in a test for people: `turn 2: expect.calls 1.args`."""
    if place[:1] == ("turn",) and len(place) > 2 and isinstance(place[1], int):
        return f"turn {place[1] + 1}: {name_place(place[2:])}"
    return name_place(place)


def locate(text: str, place: Sequence[str | int]) -> int | None:
    """The line of a place in the file, or of the table that it belongs to."""
    keys = [part for part in place if isinstance(part, str)]
    if place[:1] != ("turn",) or len(place) < 2:
        return find_line(text, keys)
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _TURN_HEADER.match(line)]
    index = cast("int", place[1])
    if index >= len(headers):
        return find_line(text, keys)
    end = headers[index + 1] if index + 1 < len(headers) else len(lines)
    found = find_line("\n".join(lines[headers[index] : end]), keys)
    return headers[index] + (found or 1)
