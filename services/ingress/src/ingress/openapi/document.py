"""The OpenAPI document of the application."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from ingress.openapi.descriptions import add_examples, describe_fields
from ingress.openapi.responses import PROBLEM_SCHEMA

SCHEMA_REF = "#/components/schemas/{model}"
SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A JWT of the issuer, an API key (`evk_...`), or a guest's token. Development mode needs none.",
    },
    "ticket": {"type": "apiKey", "in": "query", "name": "ticket", "description": "For one conversation's events only."},
}


class OpenApi:
    """Adds to FastAPI's document what its generator can't know.

    `forms` are the bodies that endpoints read themselves; `max_files` is the maximum number of files per submission.
    """

    def __init__(
        self,
        app: FastAPI,
        generate: Callable[[], dict[str, Any]],
        *,
        forms: Sequence[type[BaseModel]],
        max_files: int,
    ) -> None:
        self._forms = forms
        self._max_files = max_files
        self._app = app
        self._generate = generate

    def build(self) -> dict[str, Any]:
        """The document, built once."""
        if self._app.openapi_schema is None or "Problem" not in self._app.openapi_schema["components"]["schemas"]:
            document = self._generate()
            components = document.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            schemas["Problem"] = PROBLEM_SCHEMA
            for form in self._forms:
                # The generator has not seen the nested schemas.
                schemas.update(form.model_json_schema(ref_template=SCHEMA_REF).get("$defs", {}))
            describe_fields(schemas)
            components["securitySchemes"] = SECURITY_SCHEMES
            document["security"] = [{"bearer": []}, {}]
            add_examples(document)
            _add_file_cap(document, self._max_files)
            self._app.openapi_schema = document
        return self._app.openapi_schema


def _add_file_cap(document: dict[str, Any], max_files: int) -> None:
    """Add the maximum number of files per submission, which is a setting, to an OpenAPI document."""
    for path in document["paths"].values():
        for operation in path.values():
            multipart = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data")
            if multipart is not None:
                multipart["schema"]["properties"]["files"]["maxItems"] = max_files
