"""The quota of a run's gateway calls: its grants and how much of them is used up."""

import math
import time
from collections.abc import Callable
from typing import cast

from everturn.execution.messages import MAX_ARGUMENT_VALUES, ArgumentRule, Capability, GatewayCall, ToolGrant


class Refused(Exception):
    """The gateway rejects this call."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Quota:
    """Counts one run's calls, bytes and time. Only the gateway changes it, from one task at a time."""

    def __init__(self, capability: Capability, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._deadline = math.inf if capability.deadline_s is None else monotonic() + capability.deadline_s
        self._grants = {grant.tool_id: grant for grant in capability.grants}
        self._calls_of: dict[str, int] = {}
        self._calls_left = capability.max_calls
        self._bytes_left = capability.max_bytes

    def count_call(self, call: GatewayCall) -> ToolGrant:
        """Count an allowed call and return its grant. Raises Refused.

        Codes: not_allowed, bad_arguments, quota_time, quota_calls.
        """
        grant = self._grants.get(call.tool_id)
        if grant is None:
            raise Refused("not_allowed", f"{call.tool_id[:80]!r} is not a tool of this run")
        check_arguments(grant, call.arguments)
        if self._monotonic() >= self._deadline:
            raise Refused("quota_time", "the time limit for tool calls of this run has passed")
        used = self._calls_of.get(call.tool_id, 0)
        if self._calls_left <= 0 or (grant.max_calls is not None and used >= grant.max_calls):
            raise Refused("quota_calls", f"this run has no calls of {call.tool_id} left")
        self._calls_of[call.tool_id] = used + 1
        self._calls_left -= 1
        return grant

    def count_bytes(self, count: int) -> None:
        """Count bytes of requests and replies. Raises Refused quota_bytes, and from then on always."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            self._bytes_left = -1
            raise Refused("quota_bytes", "this run has reached the byte limit of its tool calls")


def check_arguments(grant: ToolGrant, arguments: dict[str, object]) -> None:
    """Raise Refused bad_arguments if an argument has no rule or breaks its rule, or if there are too many values.

    A frame bounds the bytes. The worker walks through the values several times in a loop that it shares with other
    turns, and 300,000 small ones take it half a second.
    """
    if not _has_at_most(MAX_ARGUMENT_VALUES, arguments):
        raise Refused("bad_arguments", f"{grant.tool_id}: the arguments have more than {MAX_ARGUMENT_VALUES} values")
    if grant.arguments is None:
        return
    rules = {rule.name: rule for rule in grant.arguments}
    for name, value in arguments.items():
        rule = rules.get(name)
        if rule is None:
            raise Refused("bad_arguments", f"{grant.tool_id} does not accept the argument {name[:80]!r} in this run")
        if problem := find_problem(rule, value):
            raise Refused("bad_arguments", f"{grant.tool_id}: {name} {problem}")


def find_problem(rule: ArgumentRule, value: object) -> str | None:
    """Why a value breaks its rule, or None."""
    if rule.one_of is not None and value not in rule.one_of:
        return f"must be one of {', '.join(rule.one_of)}"
    if rule.max_chars is not None and not (isinstance(value, str) and len(value) <= rule.max_chars):
        return f"must be text of at most {rule.max_chars} characters"
    if rule.max_items is not None and _count_items(value) > rule.max_items:
        return f"must be a list of at most {rule.max_items} items"
    if rule.max_item_chars is not None and _longest_item(value) > rule.max_item_chars:
        return f"must be a list of strings of at most {rule.max_item_chars} characters"
    if rule.maximum is not None and not (isinstance(value, (int, float)) and value <= rule.maximum):
        return f"must be a number of at most {rule.maximum:g}"
    return None


def _has_at_most(count: int, value: object) -> bool:
    """Whether a value has at most `count` parts, including each list and object."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        count -= 1
        if isinstance(part, dict):
            waiting += list(cast("dict[str, object]", part).values())
        elif isinstance(part, list):
            waiting += cast("list[object]", part)
        if count < len(waiting):
            return False
    return True


def _longest_item(value: object) -> float:
    """Characters of the longest text in a list; infinite if it contains anything else."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    return max((len(item) if isinstance(item, str) else math.inf for item in items), default=0)


def _count_items(value: object) -> float:
    """The number of items of a list; infinite for anything else."""
    return len(cast("list[object]", value)) if isinstance(value, list) else math.inf
