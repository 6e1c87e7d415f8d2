"""A prompt as the renderer writes it, built block by block."""

import json
from typing import Any

import pytest

from everturn.models.port import ModelRequest, PromptMessage, TextPart
from everturn.timeline.inert import escape_field

TOOLS = ("exec_tools.execute_code_python", "react.read", "react.write", "react.plan")


class PromptBuilder:
    """Collects blocks; `build` puts them into one request with ANNOUNCE at its end."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.turn_id = ""
        self.tools: tuple[str, ...] = TOOLS
        self.iteration = "1/15"
        self.plan = ""
        self.code = "bubblewrap"
        self.timezone = "Europe/Berlin"

    def turn(self, turn_id: str, prompt: str) -> "PromptBuilder":
        self.turn_id = turn_id
        self.blocks += [f"[TURN {turn_id}]", f"[user.prompt ar:{turn_id}.user.prompt]\n{prompt}"]
        return self

    def attach(self, name: str, preview: str = "", mime: str = "text/csv") -> "PromptBuilder":
        ref = f"fi:{self.turn_id}.user.attachments/{escape_field(name)}"
        path = f"{self.turn_id}/attachments/{escape_field(name)}"
        self.blocks.append(f"[user.attachment.meta {ref} mime={mime} size=12 path={path}]")
        if preview:
            self.blocks.append(f"[user.attachment.text {ref}]\n{preview}")
        return self

    def say(self, kind: str, text: str) -> "PromptBuilder":
        self.blocks.append(f"[user.{kind} ar:{self.turn_id}.external.{kind}.m1]\n{text}")
        return self

    def call(self, number: int, tool_id: str, **params: Any) -> "PromptBuilder":
        header = f"[react.tool.call tc:{self.turn_id}.call_{number}.call] {tool_id}"
        self.blocks.append(f"{header}\n{json.dumps(params)}")
        return self

    def result(self, number: int, report: str, *, ok: bool = True) -> "PromptBuilder":
        word = "ok" if ok else "error"
        self.blocks.append(f"[react.tool.result tc:{self.turn_id}.call_{number}.result] {word}\n{report}")
        return self

    def ran(self, number: int, name: str, report: str, *, ok: bool = True) -> "PromptBuilder":
        return self.call(number, TOOLS[0], prog_name=name).result(number, report, ok=ok)

    def block(self, text: str) -> "PromptBuilder":
        self.blocks.append(text)
        return self

    def answered(self, text: str) -> "PromptBuilder":
        self.blocks.append(f"[assistant.completion ar:{self.turn_id}.assistant.completion]\n{text}")
        return self

    def build(self) -> ModelRequest:
        system = "Follow the channels.\n" + "\n".join(f"- {tool} does things" for tool in self.tools)
        announce = (
            f"[ANNOUNCE]\nIteration {self.iteration}\n[BUDGET]\nplenty\n[RUNTIME LIMITS]\ncode: {self.code}\n"
            f"[TEMPORAL CONTEXT]\nuser timezone: {self.timezone}\nnow (UTC): 2026-11-21T23:35:00Z\n"
            f"[OPEN PLANS]\n{self.plan}"
        )
        return ModelRequest(
            (
                PromptMessage("system", (TextPart(system, cache_point=True),)),
                PromptMessage("user", (TextPart("\n".join(self.blocks)), TextPart(announce))),
            ),
            max_output_tokens=4_096,
        )


@pytest.fixture
def prompt() -> PromptBuilder:
    return PromptBuilder()
