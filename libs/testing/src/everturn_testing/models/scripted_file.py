"""A scripted model for whole worker processes: replies from a TOML file, chosen by the user's text and the round.

The file, which each process reads:

    [[scripts]]
    when = "script:slow_answer"     # plays when the last user prompt contains this text; "" matches every prompt
    shows = ["Do this."]            # and the request contains all of these: then only the first round is played
    [[scripts.rounds]]              # one table a round, in order
    chunk_chars = 8                 # size of a piece, default 16
    pause_ms = 50                   # before each piece, default 0
    reply = '''<channel:thinking>...</channel:thinking>...'''
    calls = [{ name = "react__read", arguments = "{}" }] # after the text, in a provider's own form
    then = "stop"                   # or "length", "cut" (no finish), "hang" (waits for ever), "fail", "fail_for_good"

The round comes from `Round i/N` of the ANNOUNCE block, not from a counter, so that a worker that takes over a turn
plays the round its predecessor lost. For development only: bootstrap does not allow it otherwise.
"""

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Final, Literal

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from everturn.core.errors import Invalid
from everturn.core.settings import explain_errors, suggest_key
from everturn.models.port import ModelFailed, ModelPiece, ModelRequest, ModelTraits, TextPart
from everturn_testing.models.scripted_model import (
    SCRIPTED_TRAITS,
    Call,
    Cut,
    Fail,
    Finish,
    Pause,
    Say,
    ScriptedModel,
    Step,
)

_log = structlog.get_logger(__name__)

MAX_PROBLEMS: Final = 20
"""How many problems of one file are explained."""
_HEADER = re.compile(r"\s*\[\[\s*scripts\s*(\.\s*rounds\s*)?\]\]")
_ACTION = re.compile(r"<channel:action>(.*?)(?:</channel:action>|\Z)", re.DOTALL)
_ROUND = re.compile(r"Round (\d+)/")
_PROMPT = re.compile(r"^\[user\.prompt [^\]\n]*\]\n(.*?)(?=^\[[A-Za-z]|\Z)", re.MULTILINE | re.DOTALL)


class ScriptedCall(BaseModel):
    """A tool call in a provider's own form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    arguments: str = "{}"


class ScriptedRound(BaseModel):
    """One reply. `chunk_chars` is in characters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reply: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    chunk_chars: int = Field(default=16, ge=1, strict=True)
    pause_ms: float = Field(default=0.0, ge=0.0, strict=True)
    then: Literal["stop", "length", "cut", "hang", "fail", "fail_for_good"] = "stop"


def _check_rounds(rounds: tuple[ScriptedRound, ...]) -> tuple[ScriptedRound, ...]:
    # Not a limit of the field, which would also be reported if a round has a mistake.
    if not rounds:
        raise ValueError("A script has at least one round")
    return rounds


class KeyedScript(BaseModel):
    """The replies of the rounds of a turn whose prompt contains `when`. With `shows`, the reply to a request that
    contains these texts: rounds of lanes that run side by side have no certain numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: str
    shows: tuple[str, ...] = ()
    rounds: Annotated[tuple[ScriptedRound, ...], AfterValidator(_check_rounds)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[KeyedScript, ...]


class BadScripts(Invalid):
    """The file of the scripted model can't be used."""


def build_model(path: str) -> "FileScriptedModel":
    """The model that plays the scripts of this file. Raises BadScripts when the file is missing or invalid."""
    place = Path(path).absolute()
    try:
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        why = f"{place}: {error.strerror}. Write scripted:FILE with the path of a file with [[scripts]]."
        raise BadScripts(why) from error
    except UnicodeDecodeError as error:
        raise BadScripts(f"{place}: The text is not valid UTF-8.") from error
    try:
        return FileScriptedModel(place, text, _File.model_validate(tomllib.loads(text)).scripts)
    except ValidationError as error:
        raise BadScripts(" ".join(_explain(place, text, error))) from error
    except ValueError as error:
        raise BadScripts(f"{place}: It is not valid TOML: {error}.") from error


def _explain(path: Path, text: str, error: ValidationError) -> list[str]:
    found, lines = error.errors(include_input=False, include_url=False)[:MAX_PROBLEMS], _FileLines(text)
    problems: list[tuple[int, str]] = []
    for each, explained in zip(found, explain_errors(error), strict=False):
        key, _, why = explained.partition(": ")
        *place, last = each["loc"]
        if each["type"] == "extra_forbidden":
            model = ScriptedCall if "calls" in place else ScriptedRound if "rounds" in place else KeyedScript
            known = list((model if place else _File).model_fields)
            why = suggest_key(str(last), known) or f"Unknown key. The keys here are: {', '.join(known)}"
        elif each["type"] == "tuple_type" and last in ("scripts", "rounds"):
            why = f"Write [[{'.'.join(part for part in each['loc'] if isinstance(part, str))}]], with two brackets"
        line = lines.find(each["loc"])
        problems.append((line, f"{path}, line {line}: {key}: {why}."))
    return [problem for _, problem in sorted(problems)]


class _FileLines:
    """Where the scripts and rounds of a file begin, in lines that count from 1."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._scripts: list[tuple[int, list[int]]] = []
        for number, line in enumerate(self._lines, 1):
            header = _HEADER.match(line)
            if header and header[1] is None:
                self._scripts.append((number, []))
            elif header and self._scripts:
                self._scripts[-1][1].append(number)

    def find(self, place: Sequence[str | int]) -> int:
        """The line of a key, or of the table that it belongs to, for a place such as `"scripts", 0, "rounds", 1`."""
        begin = 1
        match place:
            case ("scripts", int(script), "rounds", int(number), *_) if script < len(self._scripts):
                line, rounds = self._scripts[script]
                begin = rounds[number] if number < len(rounds) else line
            case ("scripts", int(script), *_) if script < len(self._scripts):
                begin = self._scripts[script][0]
            case _:
                pass
        end = next((at for at, line in enumerate(self._lines[begin:], begin) if _HEADER.match(line)), len(self._lines))
        for key in (part for part in reversed(place) if isinstance(part, str)):
            written = re.compile(rf"\s*(?:{re.escape(key)}\s*=|\[+[^\]]*\b{re.escape(key)}\s*\])")
            for number, line in enumerate(self._lines[begin - 1 : end], begin):
                if written.match(line):
                    return number
        return begin


class FileScriptedModel:
    """Plays the first script that matches the prompt; it holds no state between calls."""

    def __init__(self, path: Path, text: str, scripts: tuple[KeyedScript, ...]) -> None:
        self._path = path
        self._text = text
        self._lines = _FileLines(text)
        self._scripts = scripts

    @property
    def traits(self) -> ModelTraits:
        return SCRIPTED_TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Play one round; raises ModelFailed when no script matches, or it has no such round."""
        scripted = self._choose_round(request)
        player = ScriptedModel(
            [render_steps(scripted)], chunk_chars=scripted.chunk_chars, chunk_pause_s=scripted.pause_ms / 1000
        )
        async with aclosing(player.generate(request)) as pieces:
            async for piece in pieces:
                yield piece

    def _choose_round(self, request: ModelRequest) -> ScriptedRound:
        prompt, number = read_last_prompt(request), read_iteration(request)
        whole = "\n".join(part.text for each in request.messages for part in each.parts if isinstance(part, TextPart))
        scripts = enumerate(self._scripts)
        fitting = (each for each in scripts if each[1].when in prompt and all(text in whole for text in each[1].shows))
        index, script = next(fitting, (0, None))
        if script is None:
            why = "Add [[scripts]] whose `when` is a part of it"
            raise ModelFailed(f"{self._path.name}: No script fits the message {prompt.strip()[:80]!r}. {why}.")
        number = 1 if script.shows else number
        if number > len(script.rounds):
            line, count = self._lines.find(("scripts", index)), len(script.rounds)
            faults = [fault for each in range(count) if (fault := self._find_fault(index, each))]
            raise ModelFailed(
                f"{self._path.name}, line {line}: The script {script.when!r} has {count} [[scripts.rounds]], but the "
                f"model is asked for reply {number}. {faults[0] if faults else 'Add one with the next reply'}."
            )
        if fault := self._find_fault(index, number - 1):
            _log.warning("The reply of a script is not valid", why=fault)
        return script.rounds[number - 1]

    def _find_fault(self, script: int, number: int) -> str:
        """What is wrong with the JSON of a reply that is meant to be complete; empty if nothing is."""
        scripted = self._scripts[script].rounds[number]
        for action in _ACTION.findall(scripted.reply) if scripted.then == "stop" else ():
            try:
                json.loads(action)
            except ValueError as error:
                line, why = self._lines.find(("scripts", script, "rounds", number, "reply")), str(error)
                if isinstance(error, json.JSONDecodeError):
                    why, begin = error.msg, self._text.find(action)
                    line = self._text.count("\n", 0, begin + error.pos) + 1 if begin >= 0 else line
                return f"The JSON of the reply in line {line} of {self._path.name} is not valid: {why}"
            except RecursionError:
                return f"The JSON of reply {number + 1} of the script {script + 1} is nested too deep"
        return ""


class QueuedScriptedModel:
    """Plays rounds in the order in which it is asked. A round with texts is kept for a request that contains them."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.left: list[tuple[ScriptedRound, tuple[str, ...]]] = []
        self.refused: list[ModelRequest] = []
        """Requests for which no round was left."""

    @property
    def traits(self) -> ModelTraits:
        return SCRIPTED_TRAITS

    async def generate(self, request: ModelRequest) -> AsyncGenerator[ModelPiece, None]:
        """Play the first round that fits; raises ModelFailed when there is none."""
        self.requests.append(request)
        whole = "\n".join(part.text for each in request.messages for part in each.parts if isinstance(part, TextPart))
        chosen = next((each for each in self.left if all(text in whole for text in each[1])), None)
        if chosen is None:
            self.refused.append(request)
            raise ModelFailed("The script has no reply left for this request.")
        self.left.remove(chosen)
        scripted = chosen[0]
        player = ScriptedModel(
            [render_steps(scripted)], chunk_chars=scripted.chunk_chars, chunk_pause_s=scripted.pause_ms / 1000
        )
        async with aclosing(player.generate(request)) as pieces:
            async for piece in pieces:
                yield piece


def read_last_prompt(request: ModelRequest) -> str:
    """The text of the last `[user.prompt ...]` block, or all of the last user message when there is no such block."""
    prompts = _PROMPT.findall("\n".join(_user_texts(request)))
    if prompts:
        return prompts[-1]
    users = [message for message in request.messages if message.role == "user"]
    return "\n".join(part.text for part in users[-1].parts if isinstance(part, TextPart)) if users else ""


def read_iteration(request: ModelRequest) -> int:
    """The number of the round from ANNOUNCE, counting from 1; 1 when it is missing."""
    found = _ROUND.findall("\n".join(_user_texts(request)))
    return max(1, int(found[-1])) if found else 1


def _user_texts(request: ModelRequest) -> list[str]:
    users = (message for message in request.messages if message.role == "user")
    return [part.text for message in users for part in message.parts if isinstance(part, TextPart)]


def render_steps(scripted: ScriptedRound) -> list[Step]:
    said = [Say(scripted.reply), *(Call(call.name, call.arguments) for call in scripted.calls)]
    match scripted.then:
        case "stop" | "length":
            return [*said, Finish(scripted.then)]
        case "cut":
            return [*said, Cut()]
        case "hang":
            return [*said, Pause(asyncio.Event())]
        case "fail":
            return [*said, Fail(ModelFailed("The script says so.", retryable=True))]
        case "fail_for_good":
            return [*said, Fail(ModelFailed("The script says so."))]
