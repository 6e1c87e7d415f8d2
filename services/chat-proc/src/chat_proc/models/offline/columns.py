"""Finds the columns, the grouping and the figures that a question names. Also part of the generated programs."""

import re

FIGURE_WORDS = {
    "total": ("total", "totals", "sum", "altogether", "overall"),
    "mean": ("mean", "average", "averages", "avg"),
    "min": ("min", "minimum", "lowest", "smallest", "least", "worst"),
    "max": ("max", "maximum", "highest", "largest", "biggest", "most", "best", "peak"),
    "median": ("median",),
    "count": ("count", "how many", "number of"),
}
PERIOD_WORDS = {"D": "day", "W": "week", "M": "month", "Q": "quarter", "Y": "year"}
_GROUP = r"\b(?:by|per|each|every|across|for each|grouped by|which|what)\s+(?:the\s+)?"


def plain(text: str) -> str:
    """Lower-case words with single blanks, plural endings dropped, blanks at both ends."""
    words = re.findall(r"\w+", text.replace("_", " ").casefold())
    return " " + " ".join(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words) + " "


def match_columns(question: str, columns: list[str]) -> list[str]:
    """The columns the question names, in the order of the table; a column of several words may be named by one."""
    asked = plain(question)
    whole = [name for name in columns if plain(name).strip() and plain(name) in asked]
    if whole:
        return whole
    return [name for name in columns if any(f" {word} " in asked for word in plain(name).split() if len(word) > 3)]


def match_group(question: str, columns: list[str]) -> str | None:
    """The column after "by", "per", "each", "which"...; the one that is named first."""
    found: list[tuple[int, str]] = []
    asked = question.replace("_", " ").casefold()
    for name in columns:
        words = re.escape(name.replace("_", " ").casefold()).replace(r"\ ", r"\s+")
        hit = re.search(_GROUP + r"(?:\w+\s+and\s+)?" + words + r"(?:e?s)?\b", asked) if words else None
        if hit is not None:
            found.append((hit.start(), name))
    return min(found)[1] if found else None


def match_period(question: str) -> str | None:
    """`D`, `W`, `M`, `Q` or `Y` when the question asks for figures over time; `auto` when it does not say how."""
    asked = plain(question)
    for code, word in PERIOD_WORDS.items():
        if re.search(rf" (by|per|each|every|which|what) (the )?{word} ", asked) or f" {word}ly " in asked:
            return code
    return "D" if " daily " in asked else "auto" if re.search(r" (trend|over time|timeline) ", asked) else None


def match_figures(question: str) -> list[str]:
    """The figures the question names: total, mean, min, max, median, count."""
    asked = " " + " ".join(re.findall(r"\w+", question.casefold())) + " "
    return [figure for figure, words in FIGURE_WORDS.items() if any(f" {word} " in asked for word in words)]
