"""The tools of a worker: lists them, validates arguments, and calls them."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

from chat_proc.catalog.tool import Tool, ToolCall, ToolOutcome, ToolSpec
from everturn.core.errors import Invalid

MAX_SHOWN_ERRORS = 5
MAX_NAME_CHARS = 80


class ToolRegistry:
    """Built once from the tools that a worker offers; their order is the order in the prompt."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.spec.tool_id: tool for tool in tools}
        if len(self._tools) < len(tools):
            raise Invalid("Two tools have the same id.")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    def spec(self, tool_id: str) -> ToolSpec:
        """Raises Invalid with a sentence for the model if there is no such tool."""
        return self._find(tool_id).spec

    def check_params(self, tool_id: str, params: Mapping[str, object], *, strict: bool = False) -> BaseModel:
        """Raises Invalid with a sentence for the model if the arguments are invalid.

        A model that writes "5" means 5. In a program this is an error, which is reported (`strict`).
        """
        spec = self.spec(tool_id)
        try:
            return validate_strictly(spec.params, params) if strict else spec.params.model_validate(dict(params))
        except ValidationError as error:
            raise Invalid(_describe_errors(spec, error)) from error

    async def run(self, tool_id: str, call: ToolCall) -> ToolOutcome:
        """Call a tool with parameters returned by `check_params`."""
        return await self._find(tool_id).run(call)

    def _find(self, tool_id: str) -> Tool:
        tool = self._tools.get(tool_id)
        if tool is None:
            raise Invalid(self._unknown(tool_id[:MAX_NAME_CHARS]))
        return tool

    def _unknown(self, tool_id: str) -> str:
        known = list(self._tools)
        name = tool_id.rpartition(".")[2]
        like = [known_id for known_id in known if known_id.rpartition(".")[2] == name]
        guess = (like or get_close_matches(tool_id, known, n=1, cutoff=0.5))[:1]
        hint = f" Did you mean {guess[0]}?" if guess else ""
        return f"There is no tool {tool_id!a}.{hint} The tools are: {', '.join(known) or 'none'}."


def validate_strictly(model: type[BaseModel], params: Mapping[str, object]) -> BaseModel:
    """No value is converted to another type. Raises pydantic.ValidationError.

    Arguments are sent as JSON, which has no dates, sets or enums: strings and lists are converted to these. Bytes are
    sent separately, so arguments with bytes are validated directly.
    """
    try:
        sent = json.dumps(dict(params))
    except TypeError:
        return model.model_validate(dict(params), strict=True)
    return model.model_validate_json(sent, strict=True)


def _describe_errors(spec: ToolSpec, error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    named = "; ".join(f"{_place(problem['loc'])}: {problem['msg']}" for problem in problems[:MAX_SHOWN_ERRORS])
    more = f"; and {len(problems) - MAX_SHOWN_ERRORS} more" if len(problems) > MAX_SHOWN_ERRORS else ""
    fields = ", ".join(field.alias or name for name, field in spec.params.model_fields.items()) or "none"
    return f"The parameters of {spec.tool_id} are invalid: {named}{more}. Its parameters are, in this order: {fields}."


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:MAX_NAME_CHARS] for part in loc) or "the parameters as a whole"
