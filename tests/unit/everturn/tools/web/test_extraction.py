import json
import subprocess
import sys

from everturn.tools.web.extraction import extract_page

PARAGRAPHS = "".join(
    f"<p>Paragraph {n}: the moon pulls at the sea, and the sea answers twice a day with a tide.</p>" for n in range(8)
)
ARTICLE = f"""<html><head><title>Tides &amp; moons</title><meta property="article:published_time" content="2026-02-03">
</head><body><nav>Home | Shop | Login</nav><article><h1>Tides and moons</h1>{PARAGRAPHS}</article>
<footer>All rights reserved</footer><script>alert("x")</script></body></html>"""


def test_the_text_of_an_article_is_taken_without_what_stands_around_it() -> None:
    page = extract_page(ARTICLE.encode(), "https://a.example/tides")

    assert "Paragraph 7: the moon pulls" in page["text"]
    assert "Login" not in page["text"] and "alert" not in page["text"]
    assert page["title"] in {"Tides & moons", "Tides and moons"}
    assert page["published"].startswith("2026-02-03")


def test_a_page_without_text_is_empty() -> None:
    assert extract_page(b"<html></html>", "https://a.example/")["text"] == ""


def test_bytes_that_are_no_page_are_empty() -> None:
    assert extract_page(b"\x00\xff\xfe", "https://a.example/")["text"] == ""


def test_the_program_reads_a_page_and_writes_json() -> None:
    command = [sys.executable, "-I", "-m", "everturn.tools.web.extraction", "https://a.example/"]

    done = subprocess.run(command, input=ARTICLE.encode(), capture_output=True, env={}, timeout=30, check=True)

    assert "Paragraph 0" in json.loads(done.stdout)["text"]
