"""A request of a workflow's process to its worker, and the ways in which it ends."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from chat_proc.bundles.host.host_process import SendDelta
from everturn.core.errors import Invalid
from everturn_sdk.protocol import Question

Key = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,39}$")]


class Request(BaseModel):
    """The arguments of a request, which the author's code may have changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_Wanted = TypeVar("_Wanted", bound=Request)


class Refused(Exception):
    """A request is not fulfilled; the text is the reason for the author. The workflow goes on."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that waits for its answer."""

    what: Question
    arguments: Mapping[str, Any]
    answered: asyncio.Future[object]
    send: SendDelta
    content: bytes

    def answer(self, value: object) -> None:
        """Nobody waits if the process was lost meanwhile."""
        if not self.answered.done():
            self.answered.set_result(value)

    def refuse(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(Invalid(why))

    def read(self, kind: type[_Wanted]) -> _Wanted:
        """The arguments. Raises Refused if they are invalid."""
        try:
            return kind.model_validate(self.arguments)
        except ValidationError as error:
            raise Refused(explain_request(error)) from error


def explain_request(error: ValidationError) -> str:
    """What is wrong with the arguments, for the author."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}."
