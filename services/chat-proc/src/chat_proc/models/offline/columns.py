"""Finds the columns, the grouping and the figures that a question names. Also part of the generated programs."""

import re

FIGURE_WORDS = {
    "total": ("total", "totals", "sum", "sums", "altogether", "overall"),
    "mean": ("mean", "means", "average", "averages", "avg"),
    "min": ("min", "minimum", "lowest", "smallest", "least", "worst", "cheapest", "weakest", "fewest"),
    "max": ("max", "maximum", "highest", "largest", "biggest", "most", "best", "peak", "strongest", "greatest"),
    "median": ("median", "medians"),
    "count": ("count", "counts", "how many", "number of"),
}
PERIOD_WORDS = {"D": "day", "W": "week", "M": "month", "Q": "quarter", "Y": "year"}
CHART_WORDS = {"pie": ("pie", "donut"), "hist": ("histogram", "distribution"), "scatter": ("scatter", "correlation"),
               "line": ("line chart", "line graph", "line plot"), "bar": ("bar", "bars")}  # fmt: skip
_GROUP = r"\b(?:by|per|each|every|across|for each|grouped by|split by|over)\s+(?:the\s+)?"
_ASKED = (
    r"\b(?:which|what|who|best|worst|highest|lowest|largest|biggest|smallest|strongest|weakest|rank(?: the)?"
    r"|(?:top|bottom|first|last)(?:\s+(?:\d+|two|three|five|ten))?)\s+(?:(?:best|worst)\s+)?(?:the\s+)?"
)


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


def match_group(question: str, columns: list[str], labels: list[str] | None = None) -> str | None:
    """The column after "by", "per", "each"..., the one named first; one of `labels` also after "which", "top 5"...

    Of "top 5 customers by amount" it is the customer, of "revenue by region" the region.
    """
    named = [(at, name) for name in columns if (at := _find_after(_GROUP, question, name)) is not None]
    asked = columns if labels is None else labels
    ranked = [(at, name) for name in asked if (at := _find_after(_ASKED, question, name)) is not None]
    found = (ranked or named) if match_ranking(question) else (named or ranked)
    return min(found)[1] if found else None


def match_second_group(question: str, first: str, columns: list[str]) -> str | None:
    """The column in "by <first> and <column>"."""
    lead = re.escape(first.casefold()).replace("_", " ") + r"(?:e?s)?\s*(?:,|&|and)\s*(?:by |per )?(?:the )?"
    found = [(at, name) for name in columns if name != first and (at := _find_after(lead, question, name)) is not None]
    return min(found)[1] if found else None


def _find_after(lead: str, question: str, name: str) -> int | None:
    words = plain(name).split()
    spelled = r"\s+".join(re.escape(word) + "(?:e?s)?" for word in words)
    hit = re.search(lead + spelled + r"\b", question.replace("_", " ").casefold()) if words else None
    if hit is None and len(words) > 1:
        heads = "|".join(re.escape(word) for word in words if len(word) > 3)
        hit = re.search(rf"{lead}(?:{heads})(?:e?s)?\b", question.replace("_", " ").casefold()) if heads else None
    return None if hit is None else hit.start()


def match_period(question: str) -> str | None:
    """`D`, `W`, `M`, `Q` or `Y` when the question asks for figures over time; `auto` when it does not say how."""
    asked = plain(question)
    for code, word in PERIOD_WORDS.items():
        if re.search(rf" (by|per|each|every|which|what|best|worst) (the )?{word} | {word}ly ", asked):
            return code
    if " daily " in asked:
        return "D"
    return "auto" if re.search(r" (trend|over time|timeline|development) ", asked) else None


def match_figures(question: str) -> list[str]:
    """The figures the question names: total, mean, min, max, median, count."""
    asked = _spell(question)
    return [figure for figure, words in FIGURE_WORDS.items() if any(f" {word} " in asked for word in words)]


def match_ranking(question: str) -> tuple[str, int] | None:
    """`high` or `low` and how many, when the question asks for the best or the worst."""
    asked = _spell(question)
    counts = {"two": 2, "three": 3, "five": 5, "ten": 10}
    cut = re.search(r" (top|bottom)( (\d{1,2}|two|three|five|ten))? ", asked)
    number = (counts.get(cut[3] or "") or int(cut[3] or 1)) if cut else 1
    for side, figure, word in (("low", "min", "bottom"), ("high", "max", "top")):
        if (cut and cut[1] == word) or any(f" {each} " in asked for each in FIGURE_WORDS[figure]):
            return side, max(1, number)
    return None


def match_chart(question: str) -> str | None:
    """The kind of chart that the question names: pie, hist, scatter, line or bar."""
    asked = _spell(question)
    return next((kind for kind, words in CHART_WORDS.items() if any(f" {word} " in asked for word in words)), None)


def _spell(text: str) -> str:
    return " " + " ".join(re.findall(r"\w+", text.replace("_", " ").casefold())) + " "
