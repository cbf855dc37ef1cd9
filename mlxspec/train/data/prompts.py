"""Where conversations begin: a file of prompts, or the model itself.

A chat model has learned what users say although it never speaks for them: given the chat template
up to where the user's text begins, it goes on with a likely question (Magpie, Xu et al. 2024,
https://arxiv.org/abs/2406.08464). Where that is, and what follows the text, is found by rendering
two texts of one letter: where they part is the place.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.loading import Tokenizer
from mlxspec.prompt import are_texts
from mlxspec.trace.difference import common_length

_MARKS = ("x", "y")


@dataclass(frozen=True)
class UserFrame:
    """What a chat template writes around the text of a user turn.

    Attributes:
        header: All that stands before it, earlier turns included.
        footer: All that follows, the opening of the reply included.
    """

    header: str
    footer: str


def find_user_frame(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> UserFrame:
    """Return the frame of the user turn that follows `messages`.

    Raises:
        UnsupportedOperationError: There is no template, or it writes the text in no one place,
            or nothing follows it.
    """
    first, second = (
        tokenizer.render_chat([*messages, {"role": "user", "content": mark}]) for mark in _MARKS
    )
    place = common_length(first, second)
    frame = UserFrame(first[:place], first[place + 1 :])
    if frame.header + _MARKS[1] + frame.footer != second or not frame.footer.split():
        raise UnsupportedOperationError(
            "the chat template does not show where a user's text begins and ends, so the model "
            "cannot be asked for prompts: give a file of prompts"
        )
    return frame


def read_prompts(path: str | Path) -> list[list[str]]:
    """Return the user turns of each conversation that a file asks for.

    A `.jsonl` file has an object per line, with "prompt" (a text) or "turns" (a list of texts);
    any other file has a prompt per line. Empty lines do not count.

    Raises:
        MlxspecError: The file cannot be read, a line is wrong, or nothing is asked for.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
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
