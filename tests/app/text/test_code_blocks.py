"""A block of code that a reply leaves open does not swallow what is written behind it."""

import pytest

from mlxspec_app.text.code_blocks import closed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("```python\nx = 1", "```python\nx = 1\n```"),
        ("~~~~\n```\n~~~", "~~~~\n```\n~~~\n~~~~"),
        ("```\na\n```\nb", "```\na\n```\nb"),
        ("a ```code``` b", "a ```code``` b"),
        ("```one``` line", "```one``` line"),
        ("```\na\n```` ", "```\na\n```` "),
    ],
)
def test_an_open_block_is_closed_with_its_own_fence(text, shown):
    assert closed(text) == shown
