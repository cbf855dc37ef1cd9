"""Prompts made of templates: a TOML file of turns with gaps, and of the words that fill them.

    count = 1000
    seed = 1
    templates = [["Write a letter about {subject}.", "Make it shorter."]]
    [words]
    subject = ["bees", "the moon"]

Templates take turns, and the seed chooses the words. The same name is the same word in all turns of
a conversation. So a few lines give thousands of conversations, and the same ones on every machine.
"""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mlxspec.errors import MlxspecError
from mlxspec.text.prompt import are_texts
from mlxspec.text_files import NotTextError, read_text

_GAP = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Templates:
    """Turns with gaps, and the words for the gaps.

    Attributes:
        templates: The turns of the user, per conversation, with names in braces.
        words: Possible words for each name.
        count: Number of conversations to make; fewer are made if some are equal.
        seed: 0 or more.
    """

    templates: Sequence[Sequence[str]]
    words: Mapping[str, Sequence[str | int]]
    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise ValueError(f"count is a number of conversations, 1 or more; got {self.count!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed is a whole number, 0 or more; got {self.seed!r}")
        if not _is_list(self.templates) or not all(map(are_texts, self.templates)):
            raise ValueError("templates is a list, not empty, of lists of texts")
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


def read_templates(path: Path) -> Templates:
    """Return the templates of a TOML file; raises `MlxspecError` if the file is wrong."""
    try:
        stated = tomllib.loads(read_text(path))
    except (OSError, NotTextError, tomllib.TOMLDecodeError) as error:
        raise MlxspecError(f"the prompt file {path} cannot be read ({error})") from error
    names = [one.name for one in fields(Templates)]
    strange = sorted(set(stated) - set(names))
    if strange or "count" not in stated:
        fault = f"sets {strange[0]!r}" if strange else "does not set count"
        raise MlxspecError(f"the prompt file {path} {fault}; it takes {', '.join(names)}")
    words: Any = stated.get("words", {})
    if not isinstance(words, dict):
        raise MlxspecError(f"the prompt file {path}: words is a table of lists, not {words!r}")
    try:
        return Templates(**{"templates": (), **stated, "words": words})
    except ValueError as error:
        raise MlxspecError(f"the prompt file {path}: {error}") from error


def _names(turns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for turn in turns for name in _GAP.findall(turn)))


def _is_list(given: object) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0
