"""The arguments of `mlxspec train`, kept apart so that its help needs no MLX."""

import argparse
from pathlib import Path

from mlxspec_cli.arguments import option

_CORPUS = "file or folder; defaults to what `data` wrote"
_FEATURES = "folder; defaults to what `features` wrote"
_OUT = "defaults to where `--drafter` finds it by its name"
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


def add_train_commands(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """Add the steps of `train`, in the order in which they run.

    `shared` has the options that every command has.
    """
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        step = steps.add_parser(name, help=text, description=text, parents=[shared])
        option(
            step, "--model", "MODEL", "folder, GGUF file or hub id; defaults to the default model"
        )
        text = "for everything that training writes; defaults to the cache folder"
        option(step, "--folder", "FOLDER", text, type=Path)
        return step

    _add_data(add("data", "Let the model write conversations."))
    _add_features(add("features", "Compute the states of the model that training reads."))
    _add_table(add("table", "Make a table of what the model finds probable."))
    for kind, text in HEADS.items():
        _add_head(add(kind, text))
    _add_eval(add("eval", "Measure a drafter on held-out conversations."))


def _add_data(step: argparse.ArgumentParser) -> None:
    text = "tokens to write in total (1000000)"
    option(step, "--tokens", "TOKENS", text, type=int, default=1_000_000)
    option(step, "--prompts", "FILE", "one prompt per line, .jsonl, or .toml", type=Path)
    option(step, "--batch-size", "COUNT", "conversations at a time (32)", type=int, default=32)
    step.add_argument("--seed", type=int, default=0)


def _add_features(step: argparse.ArgumentParser) -> None:
    option(step, "--corpus", "CORPUS", _CORPUS, type=Path)
    option(step, "--heldout", "COUNT", "held-out conversations (128)", type=count, default=128)
    text = "the most shards for training; defaults to all"
    option(step, "--shards", "COUNT", text, type=count)


def _add_table(step: argparse.ArgumentParser) -> None:
    option(step, "--corpus", "CORPUS", _CORPUS, type=Path)
    option(step, "--features", "FOLDER", _FEATURES, type=Path)
    option(step, "--max-mb", "MB", "largest size of the file (5)", type=float, default=5.0)
    option(step, "--out", "FILE", _OUT, type=Path)


def _add_head(step: argparse.ArgumentParser) -> None:
    option(step, "--recipe", "FILE", "TOML; defaults to the built-in one", type=Path)
    option(step, "--tokens", "TOKENS", "assistant tokens to learn from", type=int)
    step.add_argument("--seed", type=int)
    option(step, "--features", "FOLDER", _FEATURES, type=Path)
    option(step, "--out", "FILE", _OUT, type=Path)


def _add_eval(step: argparse.ArgumentParser) -> None:
    text = "as in `mlxspec generate` (pool)"
    option(step, "--drafter", "DRAFTER", text, default="pool")
    option(step, "--corpus", "CORPUS", _CORPUS, type=Path)
    option(step, "--answers", "COUNT", "held-out prompts to answer (16)", type=count, default=16)
    option(step, "--max-tokens", "COUNT", "of each answer (64)", type=count, default=64)
    step.add_argument("--nodes", type=count, nargs="+", default=[8, 16], help="per round (8 16)")
    step.add_argument("--temps", type=float, nargs="+", default=[0.0, 1.0], help="(0 1)")
    shapes = ("tree", "chain")
    step.add_argument("--shapes", choices=shapes, nargs="+", default=shapes, help="(tree chain)")
    option(step, "--json", "", "print one JSON document instead")
