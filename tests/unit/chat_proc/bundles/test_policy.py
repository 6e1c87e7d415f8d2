"""Rules of a bundle about calls: conditions, their language, and what the call policy makes of them."""

import time

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from chat_proc.bundles.policy import BundlePolicy, CantEvaluate, Condition, PolicyRule
from chat_proc.catalog.call_policy import NeedsApproval, Rejected
from chat_proc.catalog.tool import ToolSpec
from everturn.core.identity import Principal, Role
from everturn.turns.model import Effect

ANN = Principal("acme", "main", "ann", frozenset({Role.REGISTERED, Role.PAID}))
VALUES = {
    "args": {"amount": 5, "to": "bob@acme.example", "tags": ["a", "b"], "deep": {"x": [1, {"y": True}]}},
    "roles": ["paid", "registered"],
    "user": "ann",
    "tenant": "acme",
    "project": "main",
    "untrusted": False,
}


class Payment(BaseModel):
    model_config = ConfigDict(extra="forbid")

    amount: int
    to: str = "nobody"


PAY = ToolSpec("desk.pay", "Pays.", "Pays.", Payment, Effect.IRREVERSIBLE)


def judge(*rules: PolicyRule, untrusted: bool = False, ask: tuple[str, ...] = (), **params: object):
    return BundlePolicy(rules, ask).judge(PAY, params, ANN, untrusted=untrusted)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("args.amount > 4", True),
        ("args['amount'] > 4 and user == 'ann'", True),
        ("not args.amount > 4 or 'admin' in roles", False),
        ("1 < args.amount <= 5", True),
        ("args.to.endswith('@acme.example')", True),
        ("args.to.lower().startswith('BOB')", False),
        ("'acme' in args.to and 'c' not in args.tags", True),
        ("args.missing == None", True),
        ("args.missing.deeper == None", True),
        ("args.deep.x[1].y", True),
        ("len(args.tags) == 2", True),
        ("args.amount in [1, 5, -5]", True),
        ("tenant == 'acme' and project == 'main'", True),
        ("untrusted", False),
        ("(args.amount > 4) != untrusted", True),
        ("True", True),
        ("args.missing is None and args.to is not None", True),
    ],
)
def test_a_condition_is_evaluated(text: str, holds: bool):
    assert Condition(text).holds(VALUES) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "args.amount >",
        "x = 1",
        "import os",
        "__import__('os')",
        "args.__class__",
        "args._x",
        "other > 1",
        "args.to.format(user)",
        "args.to.upper()",
        "args.to.endswith()",
        "len(args, 1)",
        "open('x')",
        "[a for a in args.tags]",
        "(lambda: 1)()",
        "args.amount + 1 > 2",
        "args.amount ** 9 ** 9 ** 9",
        "'a' * 10 ** 9",
        "args.tags[0:1]",
        "args[user]",
        "args.amount if user else 1",
        "f'{user}'",
        "b'x'",
        "args.to.endswith(suffix='x')",
        "*args",
        "not " * 120 + "True",
        "x" * 501,
        "a\0b",
    ],
)
def test_what_is_no_condition_is_refused_where_it_is_written(text: str):
    with pytest.raises(ValueError):
        Condition(text)
    with pytest.raises(ValidationError):
        PolicyRule(tool="*", when=text, then="deny")


@pytest.mark.parametrize(
    "text", ["args.to > 4", "args.amount.lower()", "len(args.amount)", "args.tags.x", "args.tags[9]"]
)
def test_a_condition_that_does_not_fit_the_values_says_so(text: str):
    with pytest.raises(CantEvaluate):
        Condition(text).holds(VALUES)


def test_a_condition_over_long_values_ends_at_once():
    values = {**VALUES, "args": {"text": "a" * 50_000_000, "list": ["a" * 90_000] * 90_000}}
    began_s = time.perf_counter()

    with pytest.raises(CantEvaluate):
        Condition("'b' in args.text").holds(values)
    assert not Condition("'b' in args.list").holds(values)
    assert time.perf_counter() - began_s < 0.1


def test_the_first_rule_that_applies_decides():
    rules = (
        PolicyRule(tool="desk.*", when="args.to == 'nobody'", then="allow"),
        PolicyRule(tool="desk.pay", when="args.amount > 100", then="deny", because="Too much."),
        PolicyRule(tool="*", then="ask", because="Every payment is checked."),
    )

    assert judge(*rules, amount=500) is None
    assert judge(*rules, amount=500, to="bob") == Rejected(
        "A rule of this agent does not allow this call of desk.pay. Too much."
    )
    assert judge(*rules, amount=5, to="bob") == NeedsApproval("Every payment is checked.")
    assert judge(PolicyRule(tool="desk.payout", then="deny"), PolicyRule(tool="des.*", then="deny"), amount=5) is None


def test_arguments_are_compared_as_the_tool_gets_them():
    rule = PolicyRule(tool="desk.pay", when="args.amount > 100", then="deny")

    assert isinstance(judge(rule, amount="500"), Rejected)
    assert judge(rule, amount="5") is None


@pytest.mark.parametrize(("then", "judged"), [("deny", Rejected), ("ask", NeedsApproval), ("allow", NeedsApproval)])
def test_a_rule_that_can_not_be_evaluated_is_strict(then, judged):
    rule = PolicyRule(tool="desk.pay", when="args.amount.lower() == 'x'", then=then)

    assert isinstance(judge(rule, PolicyRule(tool="*", then="ask"), amount=5), judged)


def test_a_rule_can_depend_on_untrusted_text():
    rule = PolicyRule(tool="desk.pay", when="untrusted", then="ask")

    assert BundlePolicy([rule]).needs_taint(PAY)
    assert not BundlePolicy([PolicyRule(tool="other.*", when="untrusted", then="ask")]).needs_taint(PAY)
    assert judge(rule, amount=5) is None
    assert judge(rule, amount=5, untrusted=True) == NeedsApproval("")


def test_tools_that_ask_are_asked_about_unless_a_rule_says_otherwise():
    assert judge(ask=("desk.pay",), amount=5) == NeedsApproval("")
    assert judge(PolicyRule(tool="*", then="allow"), ask=("desk.pay",), amount=5) is None


def test_rules_for_tools_that_do_not_exist_are_found():
    rules = [PolicyRule(tool=tool, then="ask") for tool in ("desk.pay", "desk.*", "*", "desk.pya", "shop.*", "mcp.a.b")]

    assert BundlePolicy(rules).find_unused(["desk.pay"]) == [
        "A rule is for desk.pya, but the agent has no such tool.",
        "A rule is for shop.*, but the agent has no such tool.",
    ]
