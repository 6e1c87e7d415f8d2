"""What a bundle says about calls of tools: rules as data, with conditions in a small language.

A condition is an expression in the syntax of Python over `args` (the call's arguments), `roles`, `user`, `tenant` and
`project` of the person, and `untrusted` (whether the conversation has read text of third parties). It has literals,
lists, comparisons, `in`, `and`, `or`, `not`, `len`, and the methods of texts `startswith`, `endswith`, `lower` and
`strip`. `args.amount` and `args["amount"]` are the same; an argument that is missing is None. There is nothing that
repeats, so a condition takes microseconds.
"""

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from chat_proc.catalog.call_policy import NeedsApproval, Rejected
from chat_proc.catalog.tool import ToolSpec
from everturn.core.identity import Principal

_log = structlog.get_logger(__name__)

MAX_CONDITION_CHARS: Final = 500
MAX_CONDITION_NODES: Final = 100
MAX_TEXT_CHARS: Final = 100_000
"""A condition over a longer text can't be evaluated."""
NAMES: Final = ("args", "roles", "user", "tenant", "project", "untrusted")

_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_METHODS: Final[Mapping[str, int]] = {"startswith": 1, "endswith": 1, "lower": 0, "strip": 0}
"""Methods of texts, with the number of their arguments."""


class CantEvaluate(Exception):
    """The condition does not fit the values."""


class Condition:
    """A condition that was checked when it was read."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with the place of what is not allowed."""
        if len(text) > MAX_CONDITION_CHARS:
            raise ValueError(f"it has {len(text)} characters; at most {MAX_CONDITION_CHARS} are allowed")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{text!r} is not a valid condition: {getattr(error, 'msg', error)}") from error
        if sum(1 for _ in ast.walk(tree)) > MAX_CONDITION_NODES:
            raise ValueError(f"it has more than {MAX_CONDITION_NODES} parts")
        self.names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        self.parameters = frozenset(filter(None, map(_find_parameter, ast.walk(tree))))
        """The arguments of the call that it reads."""
        _check(tree)
        self._tree = tree

    def holds(self, values: Mapping[str, object]) -> bool:
        """Raises CantEvaluate if the values are of other types than the condition expects."""
        try:
            return bool(_evaluate(self._tree, values))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise CantEvaluate(str(error)) from error


def _find_parameter(node: ast.AST) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id="args"), attr=name):
            return name
        case ast.Subscript(value=ast.Name(id="args"), slice=ast.Constant(value=str(name))):
            return name
        case _:
            return None


def _check(node: ast.AST) -> None:
    match node:
        case ast.Constant(value=str() | int() | float() | bool() | None):
            return
        case ast.Name(id=name) if name in NAMES:
            return
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            for part in parts:
                _check(part)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            _check(part)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            for part in (left, *others):
                _check(part)
        case ast.Attribute(value=value, attr=name) if not name.startswith("_"):
            _check(value)
        case ast.Subscript(value=value, slice=ast.Constant(value=str() | int())):
            _check(value)
        case ast.Call(func=ast.Name(id="len"), args=[part], keywords=[]):
            _check(part)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=parts, keywords=[]) if _METHODS.get(name) == len(
            parts
        ):
            for part in (value, *parts):
                _check(part)
        case _:
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ValueError(f"{shown!r} is not allowed in a condition; it can use {', '.join(NAMES)} and len")


def _evaluate(node: ast.AST, values: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.BoolOp(op=op, values=parts):
            wanted = isinstance(op, ast.Or)
            return next((True for part in parts if bool(_evaluate(part, values)) is wanted), False) is wanted
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_evaluate(part, values) for part in parts]
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _evaluate(part, values)
        case ast.UnaryOp(operand=part):
            return -_evaluate(part, values)
        case ast.Compare(left=left, ops=ops, comparators=others):
            before = _evaluate(left, values)
            for op, part in zip(ops, others, strict=True):
                after = _evaluate(part, values)
                if not _COMPARISONS[type(op)](_limit(before), _limit(after)):
                    return False
                before = after
            return True
        case ast.Attribute(value=value, attr=name):
            return _read(_evaluate(value, values), name)
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            return _read(_evaluate(value, values), key)
        case ast.Call(func=ast.Name(), args=[part]):
            return len(_evaluate(part, values))
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=parts):
            text = _limit(_evaluate(value, values))
            if not isinstance(text, str):
                raise TypeError(f"{name} is for texts")
            return getattr(text, name)(*(_evaluate(part, values) for part in parts))
        case _:
            raise TypeError(f"{type(node).__name__} is no part of a condition")


def _read(value: object, key: object) -> object:
    if value is None:
        return None
    if isinstance(value, dict):
        return cast("dict[object, object]", value).get(key)
    if isinstance(value, list) and isinstance(key, int):
        return cast("list[object]", value)[key]
    raise TypeError(f"a value has no part {key!r}")


def _limit(value: Any) -> Any:
    size = len(value) if hasattr(value, "__len__") else 0
    if size > MAX_TEXT_CHARS:
        raise ValueError("a value is too long")
    return value


def _check_condition(text: str) -> str:
    Condition(text)
    return text


class PolicyRule(BaseModel):
    """`[[policy]]`: what happens to calls of a tool, `alias.*` for all of an alias, or `*`. The first rule that applies
    decides. `because` is shown to the person who is asked, or to the model that is refused.

    `allow` only means that no later rule applies: a bundle can't lift a rule of the platform or of the operator, nor
    the approval that a tool requires.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str = Field(pattern=r"^(\*|[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\.\*)?)$", max_length=128)
    when: Annotated[str, AfterValidator(_check_condition)] = "True"
    then: Literal["allow", "ask", "deny"]
    because: str = Field(default="", max_length=500)

    def is_for(self, tool_id: str) -> bool:
        return self.tool in ("*", tool_id) or (self.tool.endswith(".*") and tool_id.startswith(self.tool[:-1]))


HostName = Annotated[str, Field(pattern=r"^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*$", max_length=253)]


class BuiltinToolsSection(BaseModel):
    """`[builtin_tools]`: tools of the platform and of the operator that this agent does not have (`off`), and those
    whose calls a person has to approve (`ask`), unless a rule of `[[policy]]` says otherwise. With `fetch_hosts`,
    `web_tools.web_fetch` reads pages of these hosts only: names, or `*.name` for all names below it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    off: tuple[str, ...] = Field(default=(), max_length=100)
    ask: tuple[str, ...] = Field(default=(), max_length=100)
    fetch_hosts: tuple[HostName, ...] = Field(default=(), max_length=100)


class BundlePolicy:
    """The rules of one bundle. Implements CallRules of the catalog."""

    def __init__(self, rules: Sequence[PolicyRule], ask: Sequence[str] = ()) -> None:
        asked = [PolicyRule(tool=tool_id, then="ask") for tool_id in ask]
        self._rules = tuple((rule, Condition(rule.when)) for rule in (*rules, *asked))

    def find_unused(self, tool_ids: Collection[str]) -> list[str]:
        """A sentence for each rule that is for none of these tools; those of MCP servers come and go."""
        return [
            f"A rule is for {rule.tool}, but the agent has no such tool."
            for rule, _ in self._rules
            if not rule.tool.startswith("mcp.") and not any(map(rule.is_for, tool_ids))
        ]

    def needs_taint(self, spec: ToolSpec) -> bool:
        """Whether a rule for this tool depends on `untrusted`."""
        return any("untrusted" in condition.names for rule, condition in self._rules if rule.is_for(spec.tool_id))

    def judge(
        self, spec: ToolSpec, params: Mapping[str, object], principal: Principal, *, untrusted: bool
    ) -> NeedsApproval | Rejected | None:
        """None if the call is allowed as far as the bundle is concerned."""
        values: dict[str, object] = {
            "args": _complete(spec, params),
            "roles": sorted(role.value for role in principal.roles),
            "user": principal.user_id,
            "tenant": principal.tenant,
            "project": principal.project,
            "untrusted": untrusted,
        }
        for rule, condition in self._rules:
            if rule.is_for(spec.tool_id) and _applies(rule, condition, spec, values):
                match rule.then:
                    case "allow":
                        return None
                    case "ask":
                        return NeedsApproval(rule.because)
                    case "deny":
                        why = f" {rule.because}" if rule.because else ""
                        return Rejected(f"A rule of this agent does not allow this call of {spec.tool_id}.{why}")
        return None


def _applies(rule: PolicyRule, condition: Condition, spec: ToolSpec, values: Mapping[str, object]) -> bool:
    """A condition that can't be evaluated counts as met, unless it would allow the call."""
    try:
        return condition.holds(values)
    except CantEvaluate as error:
        _log.warning("Could not evaluate a rule of a bundle", tool_id=spec.tool_id, when=rule.when, error=str(error))
        return rule.then != "allow"


def _complete(spec: ToolSpec, params: Mapping[str, object]) -> Mapping[str, object]:
    """The arguments as the tool will get them, with their defaults; as they are if they are invalid."""
    try:
        return spec.params.model_validate(dict(params)).model_dump(mode="json")
    except ValueError:
        return dict(params)
