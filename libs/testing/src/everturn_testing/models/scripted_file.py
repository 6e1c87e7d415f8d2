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
import re
import tomllib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from everturn.core.errors import Invalid
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
    chunk_chars: int = Field(default=16, ge=1)
    pause_ms: float = Field(default=0.0, ge=0.0)
    then: Literal["stop", "length", "cut", "hang", "fail", "fail_for_good"] = "stop"


class KeyedScript(BaseModel):
    """The replies of the rounds of a turn whose prompt contains `when`. With `shows`, the reply to a request that
    contains these texts: rounds of lanes that run side by side have no certain numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: str
    shows: tuple[str, ...] = ()
    rounds: tuple[ScriptedRound, ...] = Field(min_length=1)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    scripts: tuple[KeyedScript, ...]


def build_model(path: str) -> "FileScriptedModel":
    """The model that plays the scripts of this file. Raises Invalid when the file is missing or invalid."""
    try:
        return FileScriptedModel(_File.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8"))).scripts)
    except (OSError, ValueError) as error:
        raise Invalid(f"The scripts in {path} can't be read: {error}") from error


class FileScriptedModel:
    """Plays the first script that matches the prompt; it holds no state between calls."""

    def __init__(self, scripts: tuple[KeyedScript, ...]) -> None:
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
        fitting = (each for each in self._scripts if each.when in prompt and all(text in whole for text in each.shows))
        script = next(fitting, None)
        if script is None:
            raise ModelFailed(f"No script fits the prompt {prompt.strip()[:80]!r}.")
        if script.shows:
            return script.rounds[0]
        if number > len(script.rounds):
            raise ModelFailed(f"The script {script.when!r} has no round {number}, only {len(script.rounds)}.")
        return script.rounds[number - 1]


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
