"""A program of its own that reads one HTML page from standard input and writes its text as JSON to standard output.

It parses what anybody may have written, so it runs apart: without our environment, under limits, and can be killed.
"""

import json
import resource
import sys

import trafilatura

CPU_S = 10
MEMORY_BYTES = 768 * 1024 * 1024
MAX_TEXT_CHARS = 1_000_000
"""What is written at most; the source pool keeps less."""


def extract_page(html: bytes, url: str) -> dict[str, str]:
    """`title`, `text` as Markdown, and `published` of a page; empty where it has none."""
    extracted = trafilatura.extract(
        html,
        url=url,
        output_format="json",
        with_metadata=True,
        include_comments=False,
        include_formatting=True,
        date_extraction_params={"extensive_search": False, "original_date": True},
    )
    fields: dict[str, str | None] = json.loads(extracted or "{}")
    found = {"title": fields.get("title"), "text": fields.get("text"), "published": fields.get("date")}
    return {name: (text or "")[:MAX_TEXT_CHARS] for name, text in found.items()}


def main() -> None:
    """The address is the only argument."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    json.dump(extract_page(sys.stdin.buffer.read(), sys.argv[1]), sys.stdout)


if __name__ == "__main__":
    main()
