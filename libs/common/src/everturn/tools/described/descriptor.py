"""What an operator says about tools that are functions of a Python module: which, by which name, and what repeating
one would do."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from everturn.model.commits import Effect
from everturn.ports.tool import Strategy

NAME = r"^[a-z][a-z0-9_]{0,39}$"
MAX_TIMEOUT_S = 300.0


class DescribedTool(BaseModel):
    """One function. What is not said is the careful choice: it can't be undone, and its words are trusted no more than
    the web's only where `untrusted` says so. `in_loop` offers it to the model beside programs. With
    `requires_approval` a person is asked before each call, and programs can't make one. `addresses` names the
    parameters that hold web addresses which the function requests: the rules of WEB_FETCH apply to them. A tool that
    `asks_after_untrusted` asks a person once the conversation has read words of strangers. `strategy` says beside which
    other tools a call may be in one reply; beside none where it is not said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    effect: Effect = Effect.IRREVERSIBLE
    timeout_s: float = Field(default=60.0, gt=0, le=MAX_TIMEOUT_S)
    untrusted: bool = False
    in_loop: bool = True
    in_programs: bool = True
    requires_approval: bool = False
    strategy: Strategy = "unknown"
    addresses: tuple[str, ...] = ()
    asks_after_untrusted: bool = False

    @model_validator(mode="after")
    def check_callers(self) -> "DescribedTool":
        if self.requires_approval and ("in_programs" in self.model_fields_set and self.in_programs):
            raise ValueError("a program can't wait for a person: a tool with requires_approval has in_programs = false")
        if self.requires_approval and not self.in_loop:
            raise ValueError("a tool with requires_approval is called by the loop only, so it needs in_loop = true")
        return self


class ToolModule(BaseModel):
    """A module by its import name, or a file; only the functions named in `tools` are offered, as `alias.name`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str = Field(pattern=NAME)
    module: str | None = None
    file: Path | None = None
    tools: Mapping[str, DescribedTool] = Field(min_length=1)

    @model_validator(mode="after")
    def check_place(self) -> "ToolModule":
        if (self.module is None) == (self.file is None):
            raise ValueError("name either a module or a file")
        if private := [name for name in self.tools if name.startswith("_")]:
            raise ValueError(f"{private[0]} is private to its module")
        return self
