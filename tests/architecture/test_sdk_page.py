"""`docs/reference/sdk.md` describes everything that authors import from the SDK, made from its docstrings."""

import os
from pathlib import Path
from types import ModuleType

from documents.sdk_page import find_undocumented, render_sdk_page

import everturn_sdk

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "sdk.md"


def test_the_page_describes_all_that_authors_import() -> None:
    text = render_sdk_page()
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text)

    assert PAGE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"
    assert all(f"\n### {name}\n" in text for name in everturn_sdk.__all__)


def test_all_that_authors_import_has_a_docstring() -> None:
    assert find_undocumented() == []


def test_a_page_has_signatures_defaults_fields_and_errors() -> None:
    text = render_sdk_page()

    assert "await BaseWorkflow.step(\n    key: str,\n    fn: Callable[..., Any],\n    *args: Any,\n    effect: " in text
    assert "| `timeout_s` |" not in text, "options are arguments of `tool`, not a class"
    assert "get_plain(path: str, default: object = ...) -> Any" in text
    assert "| `size` | `int` |  | In bytes. |" in text
    assert "An exception, a kind of `LookupError`." in text
    assert "Raises StepFailed" in text


def test_an_export_without_a_docstring_is_found() -> None:
    class Silent:
        def speak(self) -> None: ...

    module = ModuleType("some")
    module.__dict__.update({"Silent": Silent, "__all__": ["Silent"]})

    assert find_undocumented(module) == ["Silent", "Silent.speak"]
