"""The API as a page that needs no script: what runs on our origin could start turns, so nothing foreign is loaded."""

from collections.abc import Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)
_METHODS = ("get", "post", "put", "patch", "delete")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "code{background:#f3f3f3;padding:.1em .3em}h3{margin-top:2rem}.m{font-weight:bold;text-transform:uppercase}"
)


@router.get("/docs")
async def get_docs(request: Request) -> HTMLResponse:
    """All operations, readable in any browser, also without a network."""
    page = render_docs(request.app.openapi())
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"})


def render_docs(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as HTML. Every text of it is escaped."""
    info = document["info"]
    operations = [
        _render_operation(path, method, item[method])
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        f"<style>{_STYLE}</style><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        "<p>The same for machines, with all schemas: <a href=/openapi.json>/openapi.json</a></p>"
        f"{''.join(operations)}</html>"
    )


def _render_operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    asked = [f"<code>{escape(item['name'])}</code> ({item['in']})" for item in operation.get("parameters", ())]
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = [
        f"<code>{escape(status)}</code> {escape(a['description'])}" for status, a in operation["responses"].items()
    ]
    rows = [
        f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>",
        f"<p>Takes {', '.join(asked)}</p>" if asked else "",
        f"<p>Body: {', '.join(f'<code>{escape(kind)}</code>' for kind in bodies)}</p>" if bodies else "",
        f"<p>Answers: {'; '.join(answers)}</p>",
    ]
    return f"<h3><span class=m>{method}</span> <code>{escape(path)}</code></h3>{''.join(rows)}"
