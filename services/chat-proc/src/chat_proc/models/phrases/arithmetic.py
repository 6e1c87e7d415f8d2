"""Arithmetic in a person's message: parsed by a small grammar and computed exactly, without eval."""

import math
import re
from fractions import Fraction

_LEAD = re.compile(
    r"^(?:(?:and|so|now|please|hey|ok|then|also|can you|could you|tell me|do you know)[\s,]+)*"
    r"(?:(?:what(?:'s| is| are)|how much (?:is|are|makes?)|compute|calculate|evaluate|work out|solve|add up)\s+)?",
    re.IGNORECASE,
)
_TAIL = re.compile(r"[\s?!.=]*(?:please|equal|equals)?[\s?!.=]*$", re.IGNORECASE)
_LIST = re.compile(
    r"^(?:the )?(sum|total|average|mean|minimum|maximum|min|max|product) of ([-\d.,\s]+(?:and [-\d.]+)?)$",
    re.IGNORECASE,
)
_WORDS = (
    (r"(\d)\s*%\s*of\b", r"\1/100*"),
    (r"(\d)\s*percent of\b", r"\1/100*"),
    (r"(\d)\s*%(?!\s*[\d(])", r"\1/100"),
    (r"\bthe\s+", ""),
    (r"\bsquare root of\s*", "sqrt "),
    (r"\bdivided by\b|\u00f7", "/"),
    (r"\bmultiplied by\b|\btimes\b|\u00d7|\u00b7|(?<=\d)\s*x\s*(?=\d)", "*"),
    (r"\bplus\b", "+"),
    (r"\bminus\b|\u2212|\u2013", "-"),
    (r"\bto the power of\b|\*\*", "^"),
    (r"\bsquared\b", "^2"),
    (r"\bcubed\b", "^3"),
    (r"\bmod(?:ulo)?\b", "%"),
    (r"(?<=\d),(?=\d{3}(?!\d))", ""),
)
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|sqrt\b|[-+*/%^()])")
_MAX_CHARS = 200
_MAX_TOKENS = 100
_MAX_DEPTH = 30
_MAX_EXPONENT = 1_000
_MAX_BITS = 4_000
_MAX_SHOWN_DIGITS = 60


class _Unreadable(Exception):
    """The text is no arithmetic."""


class _Unsolvable(Exception):
    """It is arithmetic, but has no result that can be told; the text says why."""


def try_compute(text: str) -> str | None:
    """`17 * 23 = 391`, or why there is no result; None if the text is not only arithmetic."""
    asked = _TAIL.sub("", _LEAD.sub("", " ".join(text[: _MAX_CHARS + 1].split())))
    if not asked or len(asked) > _MAX_CHARS:
        return None
    found = _LIST.match(asked)
    if found is not None:
        return _compute_list(found[1].lower(), re.findall(r"-?\d+(?:\.\d+)?", found[2]), asked)
    parts = [_compute(part) for part in re.split(r"\s+and\s+|;\s*|,\s+", asked)]
    told = [part for part in parts if part is not None]
    return "\n".join(told) if len(told) == len(parts) else None


def _compute_list(word: str, values: list[str], asked: str) -> str | None:
    numbers = [Fraction(value) for value in values]
    if len(numbers) < 2:
        return None
    results = {"min": min(numbers), "max": max(numbers), "sum": sum(numbers), "tot": sum(numbers)}
    results |= {"pro": math.prod(numbers, start=Fraction(1))}
    result = results.get(word[:3], sum(numbers) / len(numbers))
    return f"The {asked.removeprefix('the ')} is {_format(Fraction(result))}."


def _compute(asked: str) -> str | None:
    written = asked
    for pattern, put in _WORDS:
        written = re.sub(pattern, put, written, flags=re.IGNORECASE)
    try:
        marks = _split(written)
        if "sqrt" not in marks and not set(marks[1:]) & set("+-*/%^"):
            return None
        result = _Reader(marks).read()
        shown = re.sub(r"\s*([+*/^]|(?<=[\d)])\s*-)\s*", lambda mark: f" {mark[1].strip()} ", asked)
        told = _format(result)
    except _Unreadable:
        return None
    except _Unsolvable as problem:
        return f"{asked}: {problem}"
    return f"{shown} {'≈' if told.startswith('~') else '='} {told.removeprefix('~')}"


def _split(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) >= _MAX_TOKENS:
            raise _Unreadable
        tokens.append(found[1])
        at = found.end()
    return tokens


class _Reader:
    """Recursive descent over the tokens: sums of products of signed powers."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def read(self) -> Fraction:
        value = self._sum()
        if self._at < len(self._tokens):
            raise _Unreadable
        return value

    def _sum(self) -> Fraction:
        value = self._product()
        while (mark := self._take("+", "-")) is not None:
            value = value + self._product() if mark == "+" else value - self._product()
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while (mark := self._take("*", "/", "%")) is not None:
            other = self._signed()
            if mark != "*" and other == 0:
                raise _Unsolvable("a division by zero has no result.")
            value = _bounded(value * other if mark == "*" else value / other if mark == "/" else value % other)
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Unreadable
        mark = self._take("+", "-", "sqrt")
        value = self._power() if mark is None else self._signed()
        self._depth -= 1
        return -value if mark == "-" else _root(value) if mark == "sqrt" else value

    def _power(self) -> Fraction:
        base = self._atom()
        return base if self._take("^") is None else _raise(base, self._signed())

    def _atom(self) -> Fraction:
        if self._take("(") is not None:
            value = self._sum()
            if self._take(")") is None:
                raise _Unreadable
            return value
        if self._at >= len(self._tokens) or not self._tokens[self._at][-1].isdigit():
            raise _Unreadable
        self._at += 1
        return Fraction(self._tokens[self._at - 1])

    def _take(self, *marks: str) -> str | None:
        if self._at < len(self._tokens) and self._tokens[self._at] in marks:
            self._at += 1
            return self._tokens[self._at - 1]
        return None


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > _MAX_EXPONENT:
        raise _Unsolvable("I compute powers with whole exponents up to 1,000 only.")
    if base == 0 and exponent < 0:
        raise _Unsolvable("a division by zero has no result.")
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) > _MAX_BITS:
        raise _Unsolvable("the result is too long to show.")
    return Fraction(base ** int(exponent))


def _root(value: Fraction) -> Fraction:
    if value < 0:
        raise _Unsolvable("a negative number has no real square root.")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    scale = 10**30
    return Fraction(math.isqrt(value.numerator * value.denominator * scale * scale), value.denominator * scale)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise _Unsolvable("the result is too long to show.")
    return value


def _format(value: Fraction) -> str:
    """Exact up to ten decimals; otherwise rounded, with a leading `~`."""
    if value.denominator == 1:
        if len(str(abs(value.numerator))) > _MAX_SHOWN_DIGITS:
            raise _Unsolvable(f"the result has more than {_MAX_SHOWN_DIGITS} digits.")
        return f"{value.numerator:,}"
    scaled = round(value * 10**10)
    digits = f"{abs(scaled):011d}"
    text = f"{'-' if scaled < 0 else ''}{int(digits[:-10]):,}.{digits[-10:]}".rstrip("0").rstrip(".")
    return text if Fraction(scaled, 10**10) == value else f"~{text}"
