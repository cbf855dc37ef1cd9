"""The arguments of `mlxspec train`, kept apart so that its help needs no MLX."""

import argparse
from pathlib import Path

HEADS = {
    "medusa": "Train Medusa heads.",
    "eagle3": "Train an EAGLE-3 head.",
    "exit": "Train an early exit.",
    "draft-model": "Distil a small Qwen2 model.",
}


def count(text: str) -> int:
    """Return text as an integer of 1 or more.

    Raises:
        ValueError: The text is not such an integer.
    """
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
        step.add_argument(
            "--model", help="folder, GGUF file or hub id; defaults to the default model"
        )
        step.add_argument(
            "--folder",
            type=Path,
            help="for everything that training writes; defaults to the cache folder",
        )
        return step

    _add_data(add("data", "Let the model write conversations."))
    _add_features(add("features", "Compute the states of the model that training reads."))
    _add_table(add("table", "Make a table of what the model finds probable."))
    for kind, text in HEADS.items():
        _add_head(add(kind, text))
    _add_eval(add("eval", "Measure a drafter on held-out conversations."))


def _add_data(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--tokens", type=int, default=1_000_000, help="tokens to write in total (1000000)"
    )
    step.add_argument(
        "--prompts", type=Path, metavar="FILE", help="one prompt per line, .jsonl, or .toml"
    )
    step.add_argument("--batch-size", type=int, default=32, help="conversations at a time (32)")
    step.add_argument("--seed", type=int, default=0)


def _add_features(step: argparse.ArgumentParser) -> None:
    step.add_argument("--corpus", type=Path, help="file or folder; defaults to what `data` wrote")
    step.add_argument("--heldout", type=count, default=128, help="held-out conversations (128)")
    step.add_argument("--shards", type=count, help="the most shards for training; defaults to all")


def _add_table(step: argparse.ArgumentParser) -> None:
    step.add_argument("--corpus", type=Path, help="file or folder; defaults to what `data` wrote")
    step.add_argument("--features", type=Path, help="folder; defaults to what `features` wrote")
    step.add_argument("--max-mb", type=float, default=5.0, help="largest size of the file (5)")
    _add_out(step)


def _add_head(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--recipe", type=Path, metavar="FILE", help="TOML; defaults to the built-in one"
    )
    step.add_argument("--tokens", type=int, help="assistant tokens to learn from")
    step.add_argument("--seed", type=int)
    step.add_argument("--features", type=Path, help="folder; defaults to what `features` wrote")
    _add_out(step)


def _add_out(step: argparse.ArgumentParser) -> None:
    step.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="defaults to where `--drafter` finds it by its name",
    )


def _add_eval(step: argparse.ArgumentParser) -> None:
    step.add_argument("--drafter", default="pool", help="as in `mlxspec generate` (pool)")
    step.add_argument("--corpus", type=Path, help="file or folder; defaults to what `data` wrote")
    step.add_argument("--answers", type=count, default=16, help="held-out prompts to answer (16)")
    text = "of each answer (64)"
    step.add_argument("--max-tokens", type=count, default=64, metavar="COUNT", help=text)
    step.add_argument("--nodes", type=count, nargs="+", default=[8, 16], help="per round (8 16)")
    step.add_argument("--temps", type=float, nargs="+", default=[0.0, 1.0], help="(0 1)")
    shapes = ("tree", "chain")
    step.add_argument("--shapes", choices=shapes, nargs="+", default=shapes, help="(tree chain)")
    step.add_argument("--json", action="store_true", help="print one JSON document instead")
