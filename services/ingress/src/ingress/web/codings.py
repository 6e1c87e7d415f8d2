"""Which content coding a client takes (RFC 9110, section 12.5.3)."""

from collections.abc import Sequence


def try_choose_coding(accepted: str, offered: Sequence[str]) -> str | None:
    """The first of `offered` that an Accept-Encoding header takes; None for the content as it is."""
    weights = dict(_read(item) for item in accepted.split(",") if item.strip())
    other = weights.get("*", 0.0)
    return next((coding for coding in offered if weights.get(coding, other) > 0), None)


def _read(item: str) -> tuple[str, float]:
    """A coding and its weight; a weight that can't be read refuses it."""
    name, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = next((text.removeprefix("q=") for text in parameters if text.startswith("q=")), "1")
    try:
        return name, float(weight)
    except ValueError:
        return name, 0.0
