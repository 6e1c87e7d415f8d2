"""The API as a page without scripts: code on this origin could start turns, so nothing foreign is loaded."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)
_METHODS = ("get", "post", "put", "patch", "delete")
_LIMITS: Final = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
_CODE: Final = re.compile(r"`([^`]+)`")
_STYLE: Final = (
    ":root{color-scheme:light dark;--line:#8884;--soft:#8882}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "code{background:var(--soft);padding:.1em .3em;border-radius:.2em;overflow-wrap:anywhere}"
    "section{border-top:1px solid var(--line);margin-top:2rem}h3{margin-bottom:.3rem}"
    "table{border-collapse:collapse;width:100%;margin:.5rem 0}"
    "th,td{text-align:left;vertical-align:top;border-bottom:1px solid var(--line);padding:.3rem .6rem .3rem 0}"
    "td:first-child{white-space:nowrap}nav ul{padding-left:1.2rem}"
    "a,td{overflow-wrap:anywhere}@media(max-width:40rem){td:first-child{white-space:normal}}"
    ".m{font-weight:bold;text-transform:uppercase}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Json = Mapping[str, Any]

_Field = tuple[str, Json, bool, str]
"""Name, schema, whether it is required, description."""


@router.get("/docs")
async def get_docs(request: Request) -> HTMLResponse:
    """All operations, fields and events as a page that loads nothing from other servers."""
    app = cast(FastAPI, request.app)
    page: str | None = getattr(app.state, "docs_page", None)
    if page is None:
        # Rendered once, in a thread: it is some hundred kilobytes of HTML.
        page = await asyncio.to_thread(lambda: render_docs(app.openapi(), app.state.event_schemas()))
        app.state.docs_page = page
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"})


def render_docs(document: Json, events: Json) -> str:
    """Render an OpenAPI document, and JSON Schemas of `events` by name, as HTML. All their texts are escaped."""
    info = document["info"]
    operations = [
        (f"{method}-{path}", method, path, item[method])
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]
    objects: Json = document["components"]["schemas"]
    own_events = {name: schema for name, schema in events.items() if name not in objects}
    title = f"{escape(info['title'])} {escape(info['version'])}"
    index = [
        ("Calls", [(anchor, f"{method.upper()} {path}") for anchor, method, path, _ in operations]),
        ("Objects", [(name, name) for name in objects]),
        ("Events", [(name, name) for name in own_events]),
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        "<p>Machine-readable: <a href=/openapi.json>/openapi.json</a></p>"
        f"<nav>{''.join(_render_index(name, entries) for name, entries in index)}</nav>"
        f"<section><h2>Calls</h2>{''.join(_render_operation(*operation) for operation in operations)}</section>"
        f"<section><h2>Objects</h2>{''.join(_render_object(*named) for named in objects.items())}</section>"
        f"<section><h2>Events</h2>{''.join(_render_object(*named) for named in own_events.items())}</section></html>"
    )


def _render_index(name: str, entries: list[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="#{escape(anchor)}">{escape(text)}</a>' for anchor, text in entries)
    return f"<h2>{name}</h2><ul>{links}</ul>" if entries else ""


def _render_operation(anchor: str, method: str, path: str, operation: Json) -> str:
    parameters = [
        (item["name"], item["schema"], bool(item.get("required")), f"{item['in']}. {item.get('description', '')}")
        for item in operation.get("parameters", ())
    ]
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = operation["responses"]
    good = {status: answer for status, answer in answers.items() if status < "400"}
    errors = {status: answer for status, answer in answers.items() if status >= "400"}
    parts = [
        f"<p>{_render_text(operation.get('description') or operation.get('summary', ''))}</p>",
        f"<h4>Parameters</h4>{_render_fields(parameters)}" if parameters else "",
        *(_render_body(f"Body: {kind}", content) for kind, content in bodies.items()),
        *(_render_answer(status, answer) for status, answer in good.items()),
        "".join(["<details><summary>Errors</summary><ul>", *map(_render_error, errors.items()), "</ul></details>"]),
    ]
    heading = f"<span class=m>{method}</span> <code>{escape(path)}</code>"
    return f'<h3 id="{escape(anchor)}">{heading}</h3>{"".join(parts)}'


def _render_body(title: str, content: Json) -> str:
    schema: Json = content.get("schema", {})
    fields = _render_fields(_find_fields(schema)) if "properties" in schema else f"<p>{_render_type(schema)}</p>"
    return f"<h4>{escape(title)}</h4>{fields}"


def _render_answer(status: str, answer: Json) -> str:
    contents = answer.get("content", {})
    if not contents:
        return f"<h4>Response {status}</h4><p>{_render_text(answer['description'])}</p>"
    return "".join(_render_body(f"Response {status}: {kind}", content) for kind, content in contents.items())


def _render_error(error: tuple[str, Json]) -> str:
    status, answer = error
    return f"<li><code>{escape(status)}</code> {_render_text(answer['description'])}"


def _render_object(name: str, schema: Json) -> str:
    fields = _render_fields(_find_fields(schema)) if "properties" in schema else f"<p>{_render_type(schema)}</p>"
    text = schema.get("description", "")
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{_render_text(text)}</p>{fields}'


def _find_fields(schema: Json) -> Iterator[_Field]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield name, field, name in required, field.get("description", "")


def _render_fields(fields: Iterator[_Field] | list[_Field]) -> str:
    rows = [
        f"<tr><td><code>{escape(name)}</code><td>{_render_type(schema)}{'' if required else ', optional'}"
        f"<td>{_render_text(text)} {_render_limits(schema)}"
        for name, schema, required, text in fields
    ]
    return f"<table><tr><th>Field<th>Type<th>Meaning{''.join(rows)}</table>" if rows else "<p>No fields.</p>"


def _render_type(schema: Json) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(map(_render_type, schema[several]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_render_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_render_type(schema['additionalProperties'])}"
    return escape(f"{kind} ({schema['format']})" if "format" in schema else str(kind))


def _render_limits(schema: Json) -> str:
    bounded = next((part for part in schema.get("anyOf", ()) if part.get("type") != "null"), schema)
    limits = [text.format(bounded[name]) for name, text in _LIMITS.items() if name in bounded]
    notes = [f"{', '.join(limits).capitalize()}."] if limits else []
    notes += [f"Matches <code>{escape(bounded['pattern'])}</code>."] if "pattern" in bounded else []
    if schema.get("default") is not None:
        notes.append(f"Default <code>{escape(json.dumps(schema['default']))}</code>.")
    notes += [f"Such as <code>{escape(json.dumps(example))}</code>." for example in schema.get("examples", ())[:1]]
    return " ".join(notes)


def _render_text(text: str) -> str:
    """Escape a text and render what is between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
