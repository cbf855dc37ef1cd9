"""The source of prompts: a file, or the model itself.

After the chat template up to the user's text, a chat model continues with a likely question
(Magpie, Xu et al. 2024, https://arxiv.org/abs/2406.08464). A file can have templates, in TOML:

    count = 1000
    seed = 1
    templates = [["Write a letter about {subject}.", "Make it shorter."]]
    [words]
    subject = ["bees", "the moon"]

Templates take turns, and the seed chooses the words, the same ones on every machine. The same name
is the same word in all turns of a conversation.
"""

import json
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from mlxspec.errors import MlxspecError, UnsupportedOperationError
from mlxspec.files import NotTextError, read_text
from mlxspec.loading import Tokenizer
from mlxspec.params.checks import refusal, whole, wrong_type
from mlxspec.text.prompt import are_texts
from mlxspec.trace.difference import common_length

_MARKS = ("x", "y")
_GAP = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class UserFrame:
    """The text that a chat template writes around a user turn."""

    header: str  # with earlier turns
    footer: str  # with the opening of the reply


def find_user_frame(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> UserFrame:
    """Return the frame of the user turn that follows `messages`: where two texts of it differ."""
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
    `.toml` file has templates; any other file has one prompt per line.
    """
    path = Path(path)
    try:
        text = read_text(path)
    except (OSError, NotTextError) as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error
    if path.suffix == ".toml":
        return _read_templates(path, text).prompts()
    numbered = [
        (number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()
    ]
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


@dataclass(frozen=True)
class Templates:
    """Turns with gaps, and the words for the gaps."""

    templates: Sequence[Sequence[str]]  # per conversation, the user's turns with names in braces
    words: Mapping[str, Sequence[str | int]]  # possible words for each name
    count: int  # conversations to make; fewer are made if some are equal
    seed: int = 0

    def __post_init__(self) -> None:
        whole("count", self.count, "1 or more", least=1)
        whole("seed", self.seed)
        if not isinstance(self.words, dict):
            raise wrong_type("words", "a table of lists", self.words)
        if not _is_list(self.templates) or not all(map(are_texts, self.templates)):
            raise refusal("templates", "a list, not empty, of lists of texts", self.templates)
        for turns in self.templates:
            for name in _names(turns):
                if not _is_list(self.words.get(name)):
                    raise ValueError(f"the name {{{name}}} of a template has no list under [words]")

    def prompts(self) -> list[list[str]]:
        """Return the turns of each conversation, without repeated conversations."""
        made: dict[tuple[str, ...], None] = {}
        for index in range(self.count):
            made[tuple(self._fill(index))] = None
        return [list(turns) for turns in made]

    def _fill(self, index: int) -> list[str]:
        turns = self.templates[index % len(self.templates)]
        chance = random.Random(f"{self.seed} {index}")  # a text as seed: the same in every version
        chosen = {name: str(chance.choice(self.words[name])) for name in _names(turns)}
        return [_GAP.sub(lambda gap: chosen[gap[1]], turn) for turn in turns]


def _read_templates(path: Path, text: str) -> Templates:
    try:
        stated = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error
    names = [one.name for one in fields(Templates)]
    strange = sorted(set(stated) - set(names))
    if strange or "count" not in stated:
        fault = f"sets {strange[0]!r}" if strange else "does not set count"
        raise MlxspecError(f"the prompt file {path} {fault}; it takes {', '.join(names)}")
    try:
        return Templates(**{"templates": (), "words": {}, **stated})
    except ValueError as error:
        raise MlxspecError(f"the prompt file {path}: {error}") from error


def _names(turns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for turn in turns for name in _GAP.findall(turn)))


def _is_list(given: object) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0
