"""How examples are read from documents, run in a shell, and compared; examples that test nothing are refused."""

from pathlib import Path

import pytest
from documents.blocks import BadDocument, Block, fits, read_blocks
from documents.shell import Shell

PAGE = """# A page
```bash
echo one
```
```text
one
```
Prose between.
```python file=two.py
print("two")
```
"""


def test_blocks_are_read_with_their_output_and_file_name() -> None:
    assert read_blocks(PAGE) == [
        Block(2, "bash", "echo one\n", shown="one\n"),
        Block(9, "python", 'print("two")\n', file="two.py"),
    ]


@pytest.mark.parametrize(
    "page", ["```text\nnobody printed it\n```\n", f"{PAGE}```text\na saved file prints nothing\n```\n", "```bash\nls\n"]
)
def test_a_page_with_ambiguous_blocks_is_refused(page: str) -> None:
    with pytest.raises(BadDocument):
        read_blocks(page)


@pytest.mark.parametrize(
    ("shown", "printed", "fit"),
    [
        ("", "", True),
        ("", "something", False),
        ("one", "one\n", True),
        ("one", "one two", False),
        ('{"id":"conv_…","n":1}', '{"id":"conv_01a2","n":1}', True),
        ('{"id":"conv_…","n":1}', '{"id":"conv_01a2","n":2}', False),
        ("a…", "a\nb", False),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("a\n…\nz", "a\nb\nc", False),
        ("1.5", "105", False),
    ],
)
def test_the_documented_output_is_complete(shown: str, printed: str, *, fit: bool) -> None:
    assert fits(shown, printed) is fit


async def test_example_shells_keep_variables_and_the_current_folder(tmp_path: Path) -> None:
    async with Shell(tmp_path, tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        await shell.play(Block(1, "bash", "mkdir below; cd below; set_here=kept\n"))
        await shell.play(Block(2, "text", "it's $saved\n", file="note.txt"))
        printed = await shell.play(Block(3, "bash", 'printf "%s " "$set_here"; cat note.txt; cat; echo err >&2\n'))

    assert printed == "kept it's $saved\nerr\n"
    assert (tmp_path / "below" / "note.txt").exists()


async def test_a_block_that_fails_or_that_nobody_runs_is_no_example(tmp_path: Path) -> None:
    async with Shell(tmp_path, tmp_path, {"PATH": "/usr/bin:/bin"}) as shell:
        with pytest.raises(BadDocument):
            await shell.play(Block(7, "python", "print()\n"))
        with pytest.raises(AssertionError, match="Line 8 failed: before"):
            await shell.play(Block(8, "bash", "echo before; false; echo behind\n"))
