"""The arguments of `mlxspec train`, kept apart so that its help needs no MLX."""

import argparse
from contextlib import suppress
from pathlib import Path

from mlxspec_cli.arguments import add_flag, option

_CORPUS = "file or folder; defaults to what `data` wrote"
_FEATURES = "folder; defaults to what `features` wrote"
_OUT = "defaults to where `--drafter` finds it by its name"
_MOST_MINUTES = 7 * 24 * 60
HEADS = {
    "medusa": "Train Medusa heads.",
    "eagle3": "Train an EAGLE-3 head.",
    "exit": "Train an early exit.",
    "draft-model": "Distil a small Qwen2 model.",
}


def count(text: str) -> int:
    """Return text as an integer of 1 or more."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def minutes(text: str) -> float:
    """Return text as a number of minutes above 0, at most a week."""
    with suppress(ValueError):
        if 0 < (number := float(text)) <= _MOST_MINUTES:
            return number
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time: give minutes above 0, at most {_MOST_MINUTES}, such as 10"
    )


def add_train_commands(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Add the steps of `train`, in their order; `shared` has the options of every command."""
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        step = steps.add_parser(name, help=text, description=text, parents=[shared])
        option(step, "--model MODEL", "folder, GGUF file or hub id; defaults to the default model")
        text = "for everything that training writes; defaults to the cache folder"
        option(step, "--folder FOLDER", text, type=Path)
        return step

    data = add("data", "Let the model write conversations.")
    option(data, "--tokens TOKENS", "tokens to write in total", 1_000_000)
    option(data, "--prompts FILE", "one prompt per line, .jsonl, or .toml", type=Path)
    option(data, "--batch-size COUNT", "conversations at a time", 32)
    data.add_argument("--seed", type=int, default=0)
    features = add("features", "Compute the states of the model that training reads.")
    option(features, "--corpus CORPUS", _CORPUS, type=Path)
    option(features, "--heldout COUNT", "held-out conversations (128)", type=count, default=128)
    option(features, "--shards COUNT", "the most shards for training; defaults to all", type=count)
    table = add("table", "Make a table of what the model finds probable.")
    option(
        table,
        "--minutes MINUTES",
        "let the model write for so long first, add to what it "
        "wrote so before, and keep the table only if it drafts better",
        type=minutes,
    )
    option(table, "--corpus CORPUS", _CORPUS, type=Path)
    option(table, "--features FOLDER", _FEATURES, type=Path)
    option(table, "--max-mb MB", "largest size of the file (5)", type=float, default=5.0)
    option(table, "--out FILE", _OUT, type=Path)
    packed = add(
        "seed-text", "Pack what the model wrote as seed text for the tables of other models."
    )
    option(packed, "--corpus CORPUS", _CORPUS, type=Path)
    option(packed, "--add FILE", "seed text to which this is added", type=Path)
    option(packed, "--max-mb MB", "largest size of the file (4)", type=float, default=4.0)
    option(packed, "--out FILE", "defaults to `seed-text.xz` in the model's folder", type=Path)
    for kind, text in HEADS.items():
        head = add(kind, text)
        option(head, "--recipe FILE", "TOML; defaults to the built-in one", type=Path)
        option(head, "--tokens TOKENS", "assistant tokens to learn from", type=int)
        head.add_argument("--seed", type=int)
        option(head, "--features FOLDER", _FEATURES, type=Path)
        option(head, "--out FILE", _OUT, type=Path)
    _add_eval(add("eval", "Measure a drafter on held-out conversations."))


def _add_eval(step: argparse.ArgumentParser) -> None:
    option(step, "--drafter DRAFTER", "as in `mlxspec generate`", "pool")
    option(step, "--corpus CORPUS", _CORPUS, type=Path)
    option(step, "--answers COUNT", "held-out prompts to answer (16)", type=count, default=16)
    option(step, "--max-tokens COUNT", "of each answer (64)", type=count, default=64)
    step.add_argument("--nodes", type=count, nargs="+", default=[8, 16], help="per round (8 16)")
    step.add_argument("--temps", type=float, nargs="+", default=[0.0, 1.0], help="(0 1)")
    add_flag(step, "branching")
    option(step, "--json", "print one JSON document instead")
