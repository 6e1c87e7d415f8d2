"""`.env.example` and the documentation page that lists every setting, both built from the settings classes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from chat_proc.models.providers import PROVIDERS
from everturn.core.settings import Secrecy, Unlisted

UNITS: Final = (
    (r"_BYTES(_|$)", "bytes"),
    (r"_PER_S$", "a second"),
    (r"_PER_MINUTE(_|$)", "a minute"),
    (r"_(S|SECONDS)$", "seconds"),
    (r"_MS$", "milliseconds"),
    (r"_DAYS$", "days"),
    (r"_TOKENS$", "tokens"),
    (r"_CHARS$", "characters"),
    (r"_USD$", "US dollars"),
)
"""The unit by the name of the variable; the first match counts."""


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """The settings of one class. `reader` is the process that reads all of them, None if other classes inherit them."""

    title: str
    settings: type[BaseModel]
    reader: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryVariable:
    """A variable that a library reads by itself."""

    name: str
    readers: str
    meaning: str
    secrecy: Secrecy | None = None


_ENCODER: Final = "worker, and ingress with EMBEDDER=openai:<model>"
_READERS: Final = {"OPENAI_API_KEY": _ENCODER, "OPENAI_BASE_URL": _ENCODER}
"""Of the variables of providers that not only the worker reads."""


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting of the page. `default` is None if it must be set. `value` describes the allowed values."""

    name: str
    value: str
    default: str | None
    secrecy: Secrecy | None
    meaning: str


def _list_provider_variables() -> Iterator[LibraryVariable]:
    """Each once: some providers share the variables of one SDK."""
    listed = set[str]()
    for provider in PROVIDERS.values():
        for variables, secrecy in ((provider.keys, Secrecy.VALUE), (provider.options, None)):
            for name, meaning in variables.items():
                if name not in listed:
                    listed.add(name)
                    yield LibraryVariable(name, _READERS.get(name, "worker"), meaning, secrecy)


LIBRARY_VARIABLES: Final = (
    *_list_provider_variables(),
    LibraryVariable(
        "AWS_ACCESS_KEY_ID",
        "ingress, worker",
        "Access key id for the bucket in OBJECTS_URL, for ECS_CLUSTER, and for Amazon Bedrock.",
    ),
    LibraryVariable(
        "AWS_SECRET_ACCESS_KEY",
        "ingress, worker",
        "Secret access key for the bucket in OBJECTS_URL, for ECS_CLUSTER, and for Amazon Bedrock.",
        Secrecy.VALUE,
    ),
    LibraryVariable("AWS_DEFAULT_REGION", "worker", "Region of ECS, Secrets Manager and the bucket for ECS_CLUSTER."),
)
BEGINNING: Final = (
    "# Configuration",
    "This page and `.env.example` are generated from the code; a test keeps them up to date. The",
    "[how-to guides](how-to/README.md) explain which settings belong together, and the [operator guide](operate.md)",
    "explains how to run an installation.",
    "",
    "Every process reads its environment once, when it starts. If values are invalid, the process does not start, and",
    "prints one line per invalid variable, without its value. Unknown variables are ignored. `make run` also reads",
    "the file `.env` beside the Makefile for variables that are not in the environment, and passes both on to the",
    "processes that it starts.",
    "",
    "Settings that differ by model role, bundle or tool are in the file that `EVERTURN_CONFIG` names",
    "([more](how-to/configure.md)). Supervisors and executors read no settings: their parent process passes them in.",
    "",
    "A variable that several processes read is listed once, unless its default differs. `secret` says which part of it",
    "must stay secret. The worker removes these values, and those of all variables whose names end in KEY, TOKEN,",
    "SECRET or PASSWORD, from its logs and from tool results.",
)


def list_settings(group: SettingGroup, checkout: Path) -> list[SettingLine]:
    """Those for operators, in the order of the class. Paths in `checkout` are shown relative to it."""
    fields = group.settings.model_fields.items()
    return [_describe(name, field, checkout) for name, field in fields if not _is_unlisted(field)]


def render_env_example(groups: Sequence[SettingGroup], checkout: Path) -> str:
    """The text of `.env.example`: each setting with description and default, those of libraries last."""
    lines = ["# Every setting, with its default. Generated from the code; a test keeps it up to date.", ""]
    for group, own in _sort_out(groups, checkout):
        lines.append(f"# --- {group.title} ---")
        for line in own:
            unset = "" if line.default is None else "# "
            lines += [f"# {line.meaning}", f"{unset}{line.name}={line.default or ''}"]
        lines.append("")
    lines.append("# --- read by libraries ---")
    for variable in LIBRARY_VARIABLES:
        lines += [f"# {variable.meaning}", f"# {variable.name}="]
    return "\n".join([*lines, ""])


def render_setting_page(groups: Sequence[SettingGroup], checkout: Path) -> str:
    """Markdown: a table for each group, and one for the variables of libraries."""
    readers = _collect_readers(groups, checkout)
    lines = [*BEGINNING, ""]
    for group, own in _sort_out(groups, checkout):
        lines += [f"## {group.title[0].upper()}{group.title[1:]}"]
        lines += ["| variable | value | default | read by | secret | meaning |", "|---|---|---|---|---|---|"]
        for line in own:
            default = "must be set" if line.default is None else f"`{line.default}`" if line.default else "empty"
            read_by = ", ".join(readers[line.name, line.default])
            cells = (f"`{line.name}`", line.value, default, read_by, line.secrecy or "", line.meaning)
            lines.append(_row(cells))
        lines.append("")
    lines += ["## Read by libraries", "| variable | read by | secret | meaning |", "|---|---|---|---|"]
    for variable in LIBRARY_VARIABLES:
        lines.append(_row((f"`{variable.name}`", variable.readers, variable.secrecy or "", variable.meaning)))
    return "\n".join([*lines, ""])


def _is_unlisted(field: FieldInfo) -> bool:
    return any(isinstance(mark, Unlisted) for mark in field.metadata)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _sort_out(groups: Sequence[SettingGroup], checkout: Path) -> Iterator[tuple[SettingGroup, list[SettingLine]]]:
    """Each group with the settings that no earlier group has with the same default."""
    seen: set[tuple[str, str | None]] = set()
    for group in groups:
        own = [line for line in list_settings(group, checkout) if (line.name, line.default) not in seen]
        seen |= {(line.name, line.default) for line in own}
        yield group, own


def _collect_readers(groups: Sequence[SettingGroup], checkout: Path) -> dict[tuple[str, str | None], list[str]]:
    readers: dict[tuple[str, str | None], list[str]] = {}
    for group in groups:
        for line in list_settings(group, checkout):
            found = readers.setdefault((line.name, line.default), [])
            found += [group.reader] if group.reader else []
    return readers


def _describe(field_name: str, field: FieldInfo, checkout: Path) -> SettingLine:
    name = str(field.validation_alias or field_name.upper())
    kind = _strip_none(field.annotation)
    secrecy = next((mark for mark in field.metadata if isinstance(mark, Secrecy)), None)
    if kind is SecretStr:
        secrecy = Secrecy.VALUE
    return SettingLine(
        name, _describe_value(name, kind, field), _show_default(field, checkout), secrecy, field.description or ""
    )


def _strip_none(annotation: object) -> object:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (one for one in get_args(annotation) if one is not NoneType)
    return annotation


def _show_default(field: FieldInfo, checkout: Path) -> str | None:
    match field.default:
        case _ if field.is_required():
            return None
        case Path() as path if path.is_relative_to(checkout):
            return str(path.relative_to(checkout))
        case value:
            return _spell(value)


def _describe_value(name: str, kind: object, field: FieldInfo) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(f"`{one}`" for one in get_args(kind) if one != "")
    if kind is bool:
        return "`1` or `0`"
    if kind is Path:
        return "path"
    if kind is int or kind is float:
        unit = next((unit for pattern, unit in UNITS if re.search(pattern, name)), "")
        words = ("whole number" if kind is int else "number", unit, _describe_bounds(field))
        return ", ".join(word for word in words if word)
    longest = _collect_marks(field).get("max_length")
    return f"text of at most {longest} characters" if longest else "text"


def _describe_bounds(field: FieldInfo) -> str:
    marks = _collect_marks(field)
    if {"ge", "le"} <= marks.keys():
        return f"{marks['ge']} to {marks['le']}"
    words = (("gt", "above"), ("ge", "at least"), ("le", "at most"))
    return ", ".join(f"{word} {marks[mark]}" for mark, word in words if mark in marks)


def _collect_marks(field: FieldInfo) -> dict[str, str]:
    """The constraints that pydantic checks, by their names in pydantic."""
    names = ("ge", "gt", "le", "max_length")
    return {name: _spell(getattr(mark, name)) for mark in field.metadata for name in names if hasattr(mark, name)}


def _spell(value: object) -> str:
    """The value as written in an environment."""
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case SecretStr():
            return value.get_secret_value()
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
