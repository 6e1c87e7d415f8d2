"""The reference of the SDK for authors, made from the docstrings and signatures of what it exports."""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from pydantic import BaseModel

import everturn_sdk

TITLES: Final = {
    "tools": "Tools",
    "workflows": "Workflows",
    "settings": "Settings and secrets",
    "protocol": "Values",
}
"""The sections of the page, by the module that defines a name; further modules get their own name as title."""
OF_PLATFORM: Final = "Called by the platform"
"""How docstrings begin of methods that authors don't call."""
MAX_LINE: Final = 100
_QUALIFIED: Final = re.compile(r"\b(?:everturn_sdk\.[a-z_]+|typing|collections\.abc|types)\.(?=[A-Z])")
_OBJECT: Final = re.compile(r"<object object at 0x[0-9a-f]{1,16}>")
_INTRODUCTION: Final = """# SDK reference
Everything that an author can import from `everturn_sdk`. The guides
[Write tools for a bundle](../how-to/write-tools-of-a-bundle.md),
[Write a workflow](../how-to/write-a-workflow.md) and [Write an operation](../how-to/write-an-operation.md) show how the
parts fit together.

This page is generated from docstrings: `tests/architecture/test_sdk_page.py` rewrites it with `UPDATE_GOLDEN=1`.
"""


def render_sdk_page(package: ModuleType = everturn_sdk) -> str:
    """The whole page."""
    names = list(package.__all__)
    sections: dict[str, list[str]] = {name: [] for name in TITLES}
    for name in names:
        module = getattr(package, name).__module__.rpartition(".")[2]
        sections.setdefault(module, []).append(name)
    parts = [_INTRODUCTION]
    for module, found in sections.items():
        if found:
            title = TITLES.get(module, module.replace("_", " ").capitalize())
            parts.append(f"## {title}")
            parts += [_render_name(name, getattr(package, name)) for name in found]
    return "\n".join(parts)


def find_undocumented(package: ModuleType = everturn_sdk) -> list[str]:
    """What is exported without a docstring: names, and the public methods of classes."""
    missing: list[str] = []
    for name in package.__all__:
        exported = getattr(package, name)
        if not _own_doc(exported):
            missing.append(name)
        if inspect.isclass(exported):
            missing += [f"{name}.{each}" for each, method in _list_methods(exported) if not _own_doc(method)]
    return missing


def _render_name(name: str, exported: Any) -> str:
    if not inspect.isclass(exported):
        return f"### {name}\n{_render_signature(name, exported)}\n{_render_doc(exported)}\n"
    lines = [f"### {name}"]
    if issubclass(exported, Exception):
        base = exported.__bases__[0]
        kind = "An exception." if base is Exception else f"An exception, a kind of `{base.__name__}`."
        return f"### {name}\n{kind} {_render_doc(exported)}\n"
    lines += [_render_doc(exported), ""]
    if rows := list(_list_fields(exported)):
        lines += ["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    for each, method in _list_methods(exported):
        lines += [_render_signature(each, method, of=name), _render_doc(method), ""]
    return "\n".join(lines)


def _render_signature(name: str, function: Callable[..., Any], of: str = "") -> str:
    signature = inspect.signature(function)
    kept = [parameter for each, parameter in signature.parameters.items() if each != "self"]
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    text = f"{prefix}{of + '.' if of else ''}{name}{_clean(str(signature.replace(parameters=kept)))}"
    if len(text) > MAX_LINE:
        star = [index for index, each in enumerate(kept) if each.kind is inspect.Parameter.KEYWORD_ONLY][:1]
        shown = [f"    {_clean(str(each))}," for each in kept]
        if star and not any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in kept):
            shown.insert(star[0], "    *,")
        returned = _clean(inspect.formatannotation(signature.return_annotation))
        head = f"{prefix}{of + '.' if of else ''}{name}("
        text = "\n".join([head, *shown, f") -> {returned}"])
    return f"```python\n{text}\n```"


def _clean(text: str) -> str:
    """Names without their modules, type variables without their marks, and no addresses of objects."""
    return _OBJECT.sub("...", _QUALIFIED.sub("", text)).replace("~_", "")


def _render_doc(described: Any) -> str:
    """The docstring as Markdown: one line a paragraph, lists kept."""
    paragraphs = re.split(r"\n\s*\n", _own_doc(described))
    return "\n\n".join(each if each.lstrip().startswith(("- ", "|")) else " ".join(each.split()) for each in paragraphs)


def _own_doc(described: Any) -> str:
    """Without that of a base class, which describes something else."""
    return inspect.cleandoc(getattr(described, "__doc__", "") or "")


def _list_methods(exported: type[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public methods that authors call or override, in their order."""
    for name, method in vars(exported).items():
        is_public = inspect.isfunction(method) and not name.startswith("_")
        is_validator = issubclass(exported, BaseModel) and name in exported.__pydantic_decorators__.model_validators
        if is_public and not is_validator and not _own_doc(method).startswith(OF_PLATFORM):
            yield name, method


def _list_fields(exported: type[Any]) -> Iterator[str]:
    """A row for each public field: of pydantic models, dataclasses, and those that `__init__` sets with a docstring."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(exported))).body[0]
    assert isinstance(tree, ast.ClassDef)
    has_fields = issubclass(exported, BaseModel) or hasattr(exported, "__dataclass_fields__")
    hints = typing.get_type_hints(exported) if has_fields else {}
    bodies = [tree.body] if has_fields else []
    bodies += [each.body for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    for body in bodies:
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign | ast.Assign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = (
                target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
            )
            if not name or name.startswith("_") or name == "model_config":
                continue
            if isinstance(node, ast.AnnAssign):
                annotation = (
                    _clean(inspect.formatannotation(hints[name])) if name in hints else ast.unparse(node.annotation)
                )
            else:
                annotation = _guess_type(node.value)
            default = "" if node.value is None or not has_fields else f"`{ast.unparse(node.value)}`"
            meaning = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                meaning = " ".join(str(after.value.value).split())
            if not annotation and not meaning:
                continue
            shown = annotation.replace("|", "\\|")
            yield f"| `{name}` | `{shown}` | {default} | {meaning} |"


def _guess_type(value: ast.expr) -> str:
    """The class of an attribute that is set to a new object."""
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""
