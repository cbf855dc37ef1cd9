"""Code between fences: what it is, and the fence that a reply leaves open."""

import pytest

from mlxspec_app.text.markdown import closed, code_block_at, code_blocks


@pytest.mark.parametrize(
    ("text", "left_open"),
    [
        ("no code", ""),
        ("```python\nx = 1\n```", ""),
        ("```python\nx = 1", "```"),
        ("````\n```\n", "````"),
        ("~~~\n```\n~~~\n", ""),
        ("~~~~\n```\n~~~", "~~~~"),
        ("```\na\n```\nb", ""),
        ("```\na\n```` ", ""),
        ("   ```\ncode\n```   ", ""),
        ("    ```\nindented, not a fence", ""),
        ("a ```code``` b", ""),
        ("```one``` line", ""),
        ("``` not a `fence` ```", ""),
        ("```\n``` still code\n", "```"),
        ("- one\n  ```\n  the item ends it", ""),
    ],
)
def test_an_open_block_is_closed_with_its_own_fence(text, left_open):
    assert closed(text) == (f"{text}\n{left_open}" if left_open else text)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("no code", []),
        ("```python\na = 1\n```\nmore", ["a = 1\n"]),
        ("```\na\n```\n~~~~\n```\nb\n~~~~", ["a\n", "```\nb\n"]),
        ("````\n```\nx\n```\n````", ["```\nx\n```\n"]),
        ("```\nnot closed", ["not closed"]),
        ("```\n```", []),
        ("1. first\n\n    ```py\n    if a:\n        b()\n    ```\n", ["if a:\n    b()\n"]),
    ],
)
def test_code_is_what_stands_between_fences(text, blocks):
    assert code_blocks(text) == blocks


def test_the_block_around_a_character_is_found_else_the_last_one():
    text = "one\n```\na\n```\ntwo\r\n```\r\nb\r\n```\r\nthree"
    assert code_block_at(text, text.index("a")) == "a\n"
    assert code_block_at(text, text.index("b")) == code_block_at(text, 0) == "b\n"
    assert code_block_at("none", 1) == ""
