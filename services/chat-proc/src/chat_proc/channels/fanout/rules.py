"""Which actions may share a reply: the ordered matrix of strategies, and what may stand beside a final answer."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from chat_proc.channels.actions import ActionRefusal
from everturn.ports.tool import Strategy

MAX_ACTIONS = 4
"""Of one reply. None may depend on another's result, so more would be guesses."""
_TURN_FOLDER = re.compile(r"(?:fi:)?(?:turn_[^/.]*[./])?")
_FOLDERS = ("files/", "outputs/")


@dataclass(frozen=True, slots=True)
class FanoutRules:
    """`strategies` has every offered tool; `code_tools` are those that run the program of the code channel."""

    strategies: Mapping[str, Strategy]
    code_tools: frozenset[str] = frozenset()
    max_actions: int = MAX_ACTIONS


@dataclass(frozen=True, slots=True)
class ActionHead:
    """What must be known of an action to judge it. `tool_id` is None for a final action."""

    tool_id: str | None

    @property
    def is_final(self) -> bool:
        return self.tool_id is None


class ActionJudge:
    """Judges the actions of one reply in the order in which they are written.

    An action that was let pass counts for those after it, also if it turns out later that it can't run: what is shown
    meanwhile depends on it.
    """

    def __init__(self, rules: FanoutRules) -> None:
        self._rules = rules
        self._passed: list[ActionHead] = []
        self._paths: set[str] = set()

    @property
    def passed(self) -> int:
        """How many actions were let pass."""
        return len(self._passed)

    def judge(self, head: ActionHead) -> ActionRefusal | None:
        """Why the next action is not to be run; None lets it pass."""
        refusal = self._refuse_final() if head.tool_id is None else self._refuse_call(head.tool_id)
        if refusal is None and len(self._passed) >= self._rules.max_actions:
            refusal = ActionRefusal("too_many_actions", f"A reply may hold {self._rules.max_actions} actions.")
        if refusal is None:
            self._passed.append(head)
        return refusal

    def claim_path(self, tool_id: str | None, path: str) -> ActionRefusal | None:
        """A tool that makes something writes to this path; two calls of a reply may not write to the same one."""
        if self._rules.strategies.get(tool_id or "") != "exploitation":
            return None
        return claim(self._paths, path)

    def _refuse_final(self) -> ActionRefusal | None:
        if any(head.is_final for head in self._passed):
            return ActionRefusal("second_final", "A reply has one final answer.")
        if any(self._strategy(head) != "neutral" for head in self._passed):
            return ActionRefusal(
                "final_after_work",
                "A final answer can't follow a call whose result you have not seen. Answer in a later round.",
            )
        return None

    def _refuse_call(self, tool_id: str) -> ActionRefusal | None:
        strategy = self._rules.strategies.get(tool_id)
        if strategy is None:
            tools = ", ".join(self._rules.strategies) or "none"
            return ActionRefusal("unknown_tool", f"There is no tool {tool_id[:80]!a}. The tools are: {tools}.")
        if any(head.is_final for head in self._passed) and strategy != "neutral":
            return ActionRefusal(
                "work_after_final", f"After a final answer {tool_id} can't run; only neutral tools can."
            )
        if tool_id in self._rules.code_tools and any(head.tool_id in self._rules.code_tools for head in self._passed):
            return ActionRefusal("second_program", "A reply runs one program. Run the next one in a later round.")
        for head in self._passed:
            if head.tool_id is not None and not may_follow(self._strategy(head), strategy):
                return _refuse_pair(head.tool_id, tool_id, self._strategy(head), strategy)
        return None

    def _strategy(self, head: ActionHead) -> Strategy:
        return "neutral" if head.tool_id is None else self._rules.strategies.get(head.tool_id, "unknown")


def may_follow(first: Strategy, then: Strategy) -> bool:
    """Whether a call of strategy `then` may stand after one of `first` in the same reply."""
    if "unknown" in (first, then):
        return False
    return (first, then) != ("exploration", "exploitation")


def claim(claimed: set[str], path: str) -> ActionRefusal | None:
    """Why a call of the reply may not write to `path` too; None takes it for this call."""
    canonical = canonical_path(path)
    if canonical in claimed:
        return ActionRefusal("same_path", f"Another action of the reply writes {path[:200]!a}. Write it in one action.")
    claimed.add(canonical)
    return None


def canonical_path(path: str) -> str:
    """One spelling for all ways to name a file of this turn: ref or path, with the turn or without, any letter case."""
    inner = _TURN_FOLDER.sub("", path.strip(), count=1)
    inner = posixpath.normpath(inner).casefold()
    return inner if inner.startswith(_FOLDERS) else f"files/{inner}"


def _refuse_pair(earlier_id: str, tool_id: str, earlier: Strategy, strategy: Strategy) -> ActionRefusal:
    if "unknown" in (earlier, strategy):
        alone = earlier_id if earlier == "unknown" else tool_id
        return ActionRefusal("beside_unknown", f"{alone} must be the only action of its reply.")
    return ActionRefusal(
        "explore_then_exploit",
        f"{tool_id} can't share a reply with {earlier_id} before it: see that result first, then make something of it.",
    )
