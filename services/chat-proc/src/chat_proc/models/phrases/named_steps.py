"""The steps in a message: a list, after a colon, or "first..., then..."; and whether it asks for a plan."""

import re

_PLAN = re.compile(
    r"\b(?:make|create|write|draw up|give|with|need|want|follow|use|do|prepare)\b.{0,30}\bplan\b"
    r"|\bplan\b.{0,40}\bsteps?\b|\bstep[- ]by[- ]step\b|^\s*plan\b|\b(?:in|these|following|with) (?:\w+ )?steps\s*:",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^\s*(?:\(?\d+[.):]|\(?[a-h][.)]|[-*•])\s+(.{2,200})$", re.MULTILINE)
_INLINE = re.compile(r"(?:^|[\s:,;])\(?\d{1,2}[.)]\s+(.+?)(?=[\s,;.]*(?:[\s,;]\(?\d{1,2}[.)]\s|$))", re.DOTALL)
_COLON = re.compile(r"\b(?:plans?|steps?|do|things|tasks)\b[^:\n]{0,60}:\s*(?P<steps>\S.*)", re.IGNORECASE | re.DOTALL)
_ORDER = re.compile(
    r"(?:^|(?<![\s,;.:])[\s,;.:]++)(?:and\s+)?"
    r"(?:secondly|thirdly|then|next|afterwards|after that|finally|lastly|at last)"
    r"\b[\s,:]*(?:then\b\s*)?",
    re.IGNORECASE,
)
_BEGIN = re.compile(r"(?:^|[.:!,\n]\s*|\bplease\s+)first(?:ly)?(?: of all)?\b[\s,:]+(?=\w)", re.IGNORECASE)
_STRONG = re.compile(r"\s*[;\n]\s*(?:and\s+)?(?:then\s+)?", re.IGNORECASE)
_COMMA = re.compile(r"\s*,\s+(?:and\s+)?(?:then\s+)?|\s+and then\s+|\s+then\s+", re.IGNORECASE)
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
_MAX_STEPS = 10
_MAX_STEP_CHARS = 200


def wants_plan(text: str) -> bool:
    """Whether the user asks for a plan, or orders steps as "first" and "then"."""
    return _PLAN.search(text) is not None or bool(_read_ordered(text))


def read_steps(text: str) -> tuple[str, ...]:
    """The user's steps, if there are at least two: a list, after a colon, or "first..., then..."."""
    colon = _COLON.search(text)
    listed = list(_LISTED.findall(text))
    for steps in (listed, _INLINE.findall(text), _read_ordered(text), _split(colon["steps"]) if colon else []):
        cleaned = [step.strip(" \t\n.,;") for step in steps]
        named = tuple(step[:_MAX_STEP_CHARS] for step in cleaned if step)[:_MAX_STEPS]
        if len(named) > 1:
            return named
    return ()


def _read_ordered(text: str) -> list[str]:
    """The steps after "first", "then", "finally"; there must be a "first" and another one."""
    begin = _BEGIN.search(text)
    if begin is None:
        return []
    steps = [step for step in _ORDER.split(text[begin.end() :]) if step.strip(" .,;")]
    return steps if len(steps) > 1 else []


def _split(text: str) -> list[str]:
    """Split at the strongest separator in the text: semicolons, then commas, then "and"."""
    line = text.strip().split("\n\n")[0].rstrip(" .!")
    for between in (_STRONG, _COMMA, _AND):
        steps = [step for step in between.split(line) if step.strip()]
        if len(steps) > 1:
            return steps
    return []
