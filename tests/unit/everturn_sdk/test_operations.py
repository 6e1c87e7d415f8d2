"""What `@operation` describes, and what is wrong with an unsuitable method, in the words that its author reads."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from everturn_sdk import BaseWorkflow, OperationContext, WorkflowError, operation
from everturn_sdk.operations import load_operations
from everturn_sdk.tools import BadTool

ANN = OperationContext(request_id="r1", tenant="acme", project="one", user_id="ann", roles=("paid",))


class Desk(BaseWorkflow):
    def __init__(self) -> None:
        super().__init__()
        self.tickets = ["T-1"]

    @operation(roles=["paid"], timeout_s=5, effect="pure")
    async def list_tickets(self, context: OperationContext, limit: int = 10) -> dict[str, Any]:
        """The tickets
        of a person.

        Newest first.
        """
        return {"of": context.user_id, "tickets": self.tickets[:limit], "scratch": self.scratchpad}

    @operation()
    async def answer(self) -> None:
        """Needs a turn."""
        await (await self.build_react()).run("Hi")

    @operation()
    async def judge(self) -> None:
        """Needs a turn."""
        await self.feedback("ok")

    async def run(self, payload: Any) -> None:
        return None


def make(method: Callable[..., Any], name: str = "do") -> BaseWorkflow:
    return type("Desk", (BaseWorkflow,), {name: operation()(method)})()


def test_an_operation_is_described_by_its_method():
    described = load_operations(Desk())["list_tickets"].description

    assert (described.name, described.summary) == ("list_tickets", "The tickets of a person.")
    assert (described.roles, described.effect, described.timeout_s) == (("paid",), "pure", 5)
    assert list(described.parameters["properties"]) == ["limit"]
    assert load_operations(None) == {}


async def test_each_call_has_a_copy_of_the_prepared_workflow():
    desk = Desk()
    desk.scratchpad["of"] = "another"

    method, given = load_operations(desk)["list_tickets"].bind(b'{"limit": 1}', ANN)

    assert await method(**given) == {"of": "ann", "tickets": ["T-1"], "scratch": {}}


@pytest.mark.parametrize("name", ["answer", "judge"])
async def test_what_needs_a_turn_says_so(name: str):
    method, given = load_operations(Desk())[name].bind(b"{}", ANN)

    with pytest.raises(WorkflowError, match="works only while a turn runs"):
        await method(**given)


@pytest.mark.parametrize("arguments", [b'{"limit": "x"}', b'{"more": 1}', b"[]", b"{", b'{"context": {}}'])
def test_other_arguments_are_refused(arguments: bytes):
    with pytest.raises(ValidationError):
        load_operations(Desk())["list_tickets"].bind(arguments, ANN)


def untyped(self: Any, name) -> None:  # type: ignore[no-untyped-def]
    """Does it."""


def silent(self: Any) -> None: ...


def documented(self: Any) -> None:
    """Does it."""


@pytest.mark.parametrize(
    ("workflow", "why"),
    [
        (make(untyped), "Desk.do: the parameter 'name' has no type."),
        (make(silent), "Desk.do: the method has no docstring"),
        (make(documented, "_hidden"), "Desk._hidden: the name of an operation has up to 60 lower-case letters"),
        (make(documented, "run"), "Desk.run: @operation marks methods of a workflow that are your own."),
        (make(staticmethod(documented)), "Desk.do: @operation marks methods of a workflow"),
    ],
)
def test_an_unsuitable_method_is_refused(workflow: BaseWorkflow, why: str):
    with pytest.raises(BadTool) as refused:
        load_operations(workflow)

    assert str(refused.value).startswith(why)


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": 46}, {"effect": "some"}])
def test_options_have_limits(options: dict[str, Any]):
    with pytest.raises(ValidationError):
        operation(**options)
