"""The source of prompts: a file, or the model itself.

A chat model has learned what users write: after the chat template up to the user's text, it
continues with a likely question (Magpie, Xu et al. 2024, https://arxiv.org/abs/2406.08464). To find
the start and end of the user's text in the template, two texts of one letter are rendered: the
index at which they differ is the index of the text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.loading import Tokenizer
from mlxspec.text.prompt import are_texts
from mlxspec.text_files import NotTextError, read_text
from mlxspec.trace.difference import common_length
from mlxspec.train.data.templates import read_templates

_MARKS = ("x", "y")


@dataclass(frozen=True)
class UserFrame:
    """The text that a chat template writes around a user turn.

    `header` includes earlier turns; `footer` includes the opening of the reply.
    """

    header: str
    footer: str


def find_user_frame(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> UserFrame:
    """Return the frame of the user turn that follows `messages`.

    Raises `UnsupportedOperationError` if there is no template, if it does not write the user's text
    exactly once, or if it writes nothing after it.
    """
    first, second = (
        tokenizer.render_chat([*messages, {"role": "user", "content": mark}]) for mark in _MARKS
    )
    index = common_length(first, second)
    frame = UserFrame(first[:index], first[index + 1 :])
    if frame.header + _MARKS[1] + frame.footer != second or not frame.footer.split():
        raise UnsupportedOperationError(
            "the chat template does not show where a user's text begins and ends, so the model "
            "cannot write prompts: give a file of prompts"
        )
    return frame


def read_prompts(path: str | Path) -> list[list[str]]:
    """Return the user turns of each conversation in a file.

    A `.jsonl` file has one object per line, with "prompt" (a text) or "turns" (a list of texts); a
    `.toml` file has templates (see `templates.py`); any other file has one prompt per line. Empty
    lines are ignored.

    Raises:
        MlxspecError: The file cannot be read, a line is wrong, or there are no prompts.
    """
    path = Path(path)
    if path.suffix == ".toml":
        return read_templates(path).prompts()
    try:
        lines = read_text(path).split("\n")
    except (OSError, NotTextError) as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise MlxspecError(f"the prompt file {path} is empty: write one prompt per line")
    if path.suffix != ".jsonl":
        return [[line] for _, line in numbered]
    return [_turns(line, f"line {number} of {path}") for number, line in numbered]


def _turns(line: str, place: str) -> list[str]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MlxspecError(f"{place} is not JSON ({error})") from error
    fields = content if isinstance(content, dict) else {}
    turns: list[str] = fields.get("turns", [fields.get("prompt")])
    if not are_texts(turns):
        raise MlxspecError(
            f'{place} must be an object with "prompt", a text, or "turns", a list of texts; '
            f"got {line[:60]}"
        )
    return turns
