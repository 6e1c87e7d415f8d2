"""What a run may ask of the gateway, from the tools' own parameters."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from chat_proc.catalog.tool import ToolSpec
from chat_proc.tools.code.program_calls import build_capability, build_rules, describe_tools
from everturn.execution.messages import ArgumentRule
from everturn.turns.model import Effect


class Params(BaseModel):
    """All kinds of rules."""

    query: str = Field(max_length=400)
    kind: Literal["web", "news"] = "web"
    urls: list[Annotated[str, Field(max_length=20)]] = Field(default_factory=list, max_length=5)
    n: int = Field(default=5, ge=1, le=10)
    after: str | None = Field(default=None, max_length=10)


SPEC = ToolSpec("demo.find", "Finds.", "", Params, Effect.PURE, timeout_s=7.0, in_programs=True, returns="rows")


def test_the_gateway_gets_rules_in_the_order_of_the_parameters() -> None:
    assert build_rules(Params) == (
        ArgumentRule("query", max_chars=400),
        ArgumentRule("kind", one_of=("web", "news")),
        ArgumentRule("urls", max_items=5, max_item_chars=20),
        ArgumentRule("n", maximum=10),
        ArgumentRule("after"),
    )


def test_a_grant_outlasts_the_limit_of_its_tool() -> None:
    capability = build_capability([SPEC], 60.0)

    (grant,) = capability.grants
    assert (grant.tool_id, grant.timeout_s) == ("demo.find", 12.0)
    assert (capability.max_calls, capability.deadline_s) == (100, 120.0)


def test_without_tools_nothing_is_granted() -> None:
    assert build_capability([], 60.0).grants == ()


def test_the_model_is_shown_how_to_call_a_tool() -> None:
    assert describe_tools([SPEC]) == (
        "- `await demo.find(query: str, kind: 'web' | 'news' = 'web', urls: list = None, n: int = 5, "
        "after: str | None = None)` returns rows. Finds."
    )
