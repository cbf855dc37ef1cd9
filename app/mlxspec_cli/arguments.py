"""Arguments: flags from the table of settings, and settings from the parsed flags; without MLX."""

import argparse
import random
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mlxspec.files import NotTextError, read_text
from mlxspec.params import GenerationParams, Grammar, Options, SamplingParams
from mlxspec.params.grammar import grammar_of
from mlxspec.params.setting import Setting
from mlxspec.params.table import ADJUSTABLE, GENERATION, LOAD, SAMPLING
from mlxspec_app.user.paths import find_paths

REPLY_FLAGS = {row.name: row for row in (*SAMPLING, *GENERATION) if row.flag}
LOAD_FLAGS = {row.name: row for row in LOAD if row.flag}
_FLAGS = {**REPLY_FLAGS, **LOAD_FLAGS}


def option(
    group: argparse._ActionsContainer, usage: str, text: str, usual: Any = None, **how: Any
) -> None:
    """Add a switch such as "--json", or a flag and the noun for its value, such as "--limit N".

    The help of a flag tells the `usual` value, which also decides on the type.
    """
    *flags, noun = usage.split(" ")
    if noun.startswith("-"):
        group.add_argument(*flags, noun, help=text, action="store_true", **how)
        return
    if usual is not None:
        text = f"{text} ({usual})"
        how |= {"default": usual, "type": type(usual)}
    group.add_argument(*flags, help=text, metavar=noun, **how)


def add_flags(group: argparse._ActionsContainer, names: Iterable[str]) -> None:
    """Add the flags of some settings to a parser or a group, in this order."""
    for name in names:
        add_flag(group, name)


def add_flag(group: argparse._ActionsContainer, name: str, **changes: Any) -> None:
    """Add the flag of a setting; `name` is also the parsed argument.

    A missing flag gives None if the settings file or `GenerationParams` has the default. `changes`
    replace keywords of `add_argument` from the table.
    """
    row = _FLAGS[name]
    default = changes.get("default", row.default)
    how: dict[str, Any] = {"dest": name, "help": _help(row, default)}
    how["default"] = None if row.file or name in REPLY_FLAGS else row.default
    kind, choices = row.range.kind, row.range.choices
    if kind is bool:
        how |= {"action": argparse.BooleanOptionalAction if row.file else "store_true"}
    else:
        how |= {"type": kind, "choices": choices or None, "metavar": row.noun or None}
        how |= {"action": "append", "default": []} if row.repeats else {}
    group.add_argument(row.flag, **{**how, **changes})


def _help(row: Setting, default: object) -> str:
    if row.unset:
        return f"{row.help}; {row.unset}"
    if row.repeats or row.range.kind is bool or default is None:
        return row.help
    return f"{row.help} ({f'{default:g}' if isinstance(default, float) else default})"


def words_of(text: str) -> list[str]:
    """Return the words of a list separated by commas, without empty ones."""
    return [word.strip() for word in text.split(",") if word.strip()]


def new_file(text: str) -> Path:
    """Return the path of a new file, checked before an hour is spent on its content."""
    path = Path(text)
    if path.exists():
        raise ValueError(f"{path} already exists: name another file")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"{path.parent} is not a folder: create it first, or name a file elsewhere"
        )
    return path


def options(args: Namespace) -> Options:
    """Return the load options of the flags that the command has."""
    given = _stated(args, (name for name in LOAD_FLAGS if name not in ("model", "learn")))
    if not given.get("drafter"):
        given.pop("drafter", None)
    paths = find_paths(vars(args).get("data_dir"))
    folders = {"learn": paths.learned, "prefixes": paths.prefixes}
    given |= {name: folder for name, folder in folders.items() if getattr(args, name, None)}
    return Options(**given)


def generation_params(args: Namespace) -> GenerationParams:
    """Return the settings of a reply, with defaults for missing flags and a random seed."""
    drawn = _stated(args, (row.name for row in SAMPLING))
    for row in SAMPLING:
        if row.typed is not None and row.name in drawn:
            row.typed.check(row.flag, drawn[row.name])
    sampling = SamplingParams(**drawn)
    given = _stated(args, (row.name for row in GENERATION if row.flag))
    if hasattr(args, "regex"):  # read here, once: a pipe can be read only once
        given["grammar"] = grammar(args)
    return GenerationParams(
        sampling=sampling, **{"seed": random.SystemRandom().getrandbits(32), **given}
    )


def grammar(args: Namespace) -> Grammar | None:
    """Return the grammar that one of the four flags sets; None without any."""
    given = [args.grammar, args.regex, args.grammar_file, args.choices]
    if sum(value is not None for value in given) > 1:
        raise ValueError("give only one of --json-schema, --regex, --grammar and --choices")
    if args.grammar_file is not None:
        return Grammar.lark(read_file(Path(args.grammar_file), "grammar"))
    if args.choices is not None:
        return Grammar.choices(args.choices.split(","))
    if args.regex is not None:
        return Grammar.regex(args.regex)
    return None if args.grammar is None else grammar_of("--json-schema", args.grammar)


def read_file(path: Path, name: str) -> str:
    """Return the text of a file; `name` describes it in messages."""
    try:
        return read_text(path)
    except OSError as error:
        raise ValueError(f"cannot read the {name} file {path}: {error.strerror}") from error
    except NotTextError as error:
        raise ValueError(f"the {name} file {path} is {error}") from error


def given_words(args: Namespace) -> tuple[str, ...]:
    """Return the slash words of the settings of a reply that the user gave."""
    return tuple(row.word for row in ADJUSTABLE.values() if is_given(args, row.name))


def is_given(args: Namespace, name: str) -> bool:
    """Return whether the user gave an argument."""
    return getattr(args, name, None) not in (None, [])


def _stated(args: Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the named arguments that the command has and the user gave."""
    given = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}
