"""The parser of the command line: all commands and their arguments.

Flags of settings come from the table of settings; the others belong to one command each. No command
is imported here, so `--help` needs no MLX.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from mlxspec import __version__
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS
from mlxspec_app.sessions.servers.address import DEFAULT_URL
from mlxspec_cli.arguments import LOAD_FLAGS, REPLY_FLAGS, add_flag, add_flags
from mlxspec_cli.serve_options import add_serve_options
from mlxspec_cli.train_options import add_train_commands

_SHELLS = ("bash", "zsh", "fish", "tcsh")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `mlxspec` with all its commands."""
    parser = argparse.ArgumentParser(
        prog="mlxspec",
        description="Lossless speculative decoding on MLX, and a chat that shows it.",
    )
    parser.add_argument("--version", action="version", version=f"mlxspec {__version__}")
    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[debug])

    _add_chat_options(add("chat", "Chat with a model in the terminal."))
    _add_generate_options(add("generate", "Generate one reply: text to stdout, figures to stderr."))
    replay = add("replay", "Replay a recorded trace; needs no model and no MLX.")
    replay.add_argument("file", help="a file written by --trace")
    replay.add_argument("--speed", type=float, default=1.0, help="1 is as recorded")
    _add_race_options(
        add("race", "Play two recorded traces side by side and say whether they agree.")
    )
    _add_export_options(add("export", "Turn a recorded trace into a page, a picture or a table."))
    _add_doctor_options(add("doctor", "Show what this machine runs on and what to improve."))
    _add_bench_options(
        add("bench", "Measure drafters, and other projects, against plain decoding.")
    )
    _add_verify_options(add("verify", "Check that drafts do not change what a model says."))
    add_serve_options(add("serve", "Answer over HTTP as OpenAI's and Anthropic's servers do."))
    _add_watch_options(add("watch", "Show what a server writes while it is written; needs no MLX."))
    models = add("models", "List the models that are here, or the drafters of one.")
    models.add_argument("model", nargs="?", help="name, folder, GGUF file, hub id or default")
    models.add_argument("--json", action="store_true", help="print one JSON document instead")
    models.add_argument("--fetch", action="store_true", help="download MODEL, or the default model")
    text = "Make a drafter for a model from its own text."
    add_train_commands(commands.add_parser("train", help=text, description=text), debug)
    completion = add("completion", "Print a script that completes mlxspec in a shell.")
    completion.add_argument("shell", choices=_SHELLS, help="the shell that will read it")
    man = add("man", "Print the manual page, as roff: for man -l -.")
    man.add_argument("--markdown", action="store_true", help="keys and settings too, as Markdown")
    for described in (completion, man):
        described.set_defaults(parser=parser)  # both commands print from the parser itself
    return parser


class Argument(NamedTuple):
    """An argument as it is typed, and what it does."""

    options: list[str]
    value: str
    help: str


class Command(NamedTuple):
    """A command as a manual describes it; `name` has the words before it."""

    name: str
    description: str
    arguments: list[Argument]


def commands_of(parser: argparse.ArgumentParser, above: str = "mlxspec") -> Iterator[Command]:
    """Yield the commands below a parser, without --help and --debug, which all of them have."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, command in action.choices.items():
                name = f"{above} {word}"
                arguments = [
                    _argument(one)
                    for one in command._actions
                    if not isinstance(one, argparse._SubParsersAction)
                    and one.dest not in ("help", "debug")
                ]
                yield Command(name, command.description or "", arguments)
                yield from commands_of(command, name)


def _argument(action: argparse.Action) -> Argument:
    choices = "|".join(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else str(action.metavar or choices or action.dest.upper())
    return Argument(list(action.option_strings), value, action.help or "")


def _add_chat_options(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser)
    parser.add_argument("--data-dir", metavar="FOLDER", help="where chats and settings are kept")
    parser.add_argument(
        "--inline",
        action="store_true",
        help="draw below the shell's prompt, not on the whole terminal",
    )
    text = "continue the last chat"
    parser.add_argument("-c", "--continue", dest="goes_on", action="store_true", help=text)
    parser.add_argument(
        "--plain", action="store_true", help="plain lines, for pipes and screen readers"
    )


def _add_generate_options(parser: argparse.ArgumentParser) -> None:
    _add_prompt_options(parser)
    _add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    text = "a text that the reply will mostly repeat, such as the file to edit: drafted from there"
    parser.add_argument("--prediction", dest="prediction_file", metavar="FILE", help=text)
    _add_grammar_options(parser, "what the reply must fit, unless --json-schema is given")


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    reports = parser.add_mutually_exclusive_group()
    text = "measure what only a Mac can tell, in about ten minutes, and write a file to send"
    reports.add_argument("--mac-report", metavar="FILE", help=text)
    text = "print what such a file says about the assumptions of the code"
    reports.add_argument("--read-report", metavar="FILE", help=text)
    text = "delete what was compared and measured here; the next load does it again"
    reports.add_argument("--forget", action="store_true", help=text)
    text = "measure the link to other ranks, and say what decoding with them gives"
    add_flag(reports, "hosts", help=text)
    text = "the model to measure with --hosts; defaults to the default model"
    add_flag(parser, "model", help=text)


def _add_race_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a file written by --trace")
    parser.add_argument("b", metavar="B", help="another one, of the same prompt")
    parser.add_argument(
        "--plain", action="store_true", help="print the result; the exit code is 1 if they differ"
    )
    parser.add_argument(
        "--html", metavar="OUT", help="write a page that plays it and works offline"
    )
    parser.add_argument("--animation", metavar="OUT", help="write a picture that plays it, as SVG")
    parser.add_argument(
        "--cast", metavar="OUT", help="write a screencast for the terminal, asciicast v2"
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def _add_watch_options(parser: argparse.ArgumentParser) -> None:
    text = f"address of a server ({DEFAULT_URL})"
    parser.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL", help=text)
    parser.add_argument("--api-key", default="", metavar="KEY", help="the server's key")
    parser.add_argument("--ask", metavar="TEXT", help="send this prompt first")
    text = "write the reply to this prompt twice, greedy, with drafts and plain, and show a race"
    parser.add_argument("--race", metavar="TEXT", help=text)
    text = "the model for that prompt, where the server has several"
    parser.add_argument("--model", default="", metavar="NAME", help=text)
    parser.add_argument(
        "--plain", action="store_true", help="print replies that are over, as without a terminal"
    )


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="TRACE", help="a file written by --trace")
    group = parser.add_argument_group("formats", "each takes a file to write, or - for stdout")
    group.add_argument("--html", metavar="OUT", help="a page that plays it and works offline")
    group.add_argument("--svg", metavar="OUT", help="a picture of the coloured text")
    group.add_argument("--animation", metavar="OUT", help="an animated picture")
    group.add_argument("--cast", metavar="OUT", help="a screencast for the terminal, asciicast v2")
    group.add_argument("--md", metavar="OUT", help="the conversation as Markdown, with figures")
    text = "the conversation as Markdown, without figures"
    group.add_argument("--text", metavar="OUT", help=text)
    group.add_argument("--csv", metavar="OUT", help="a row for every round")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def _add_grammar_options(parser: argparse.ArgumentParser, title: str) -> argparse._ActionsContainer:
    group = parser.add_argument_group(title)
    text = "a text that a regular expression matches as a whole"
    group.add_argument("--regex", metavar="PATTERN", help=text)
    text = "a text of the grammar in a file, in Lark's syntax"
    group.add_argument("--grammar", dest="grammar_file", metavar="FILE", help=text)
    text = "one of a few texts, separated by commas"
    group.add_argument("--choices", metavar="TEXT,TEXT", help=text)
    return group


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", help="folder, GGUF file, hub id; defaults to the default model"
    )
    text = "arms: plain, or names of drafters; a+b is a pool of both (plain,auto)"
    parser.add_argument("--arms", default="plain,auto", metavar="LIST", help=text)
    text = "other projects: mlx-lm, mlx-lm-draft, mlx-dspark, mlx-dspark-plain"
    parser.add_argument("--against", default="", metavar="LIST", help=text)
    parser.add_argument(
        "--baseline", metavar="ARM", help="the arm to compare with, instead of the first"
    )
    group = parser.add_argument_group("questions")
    text = "lines in the format of Spec-Bench; defaults to the built-in set"
    group.add_argument("--prompts", metavar="FILE", help=text)
    group.add_argument("--categories", default="", metavar="LIST", help="defaults to all")
    group.add_argument("--limit", type=int, metavar="N", help="the most questions per category")
    group.add_argument("--temps", default="0", metavar="LIST", help="temperatures (0)")
    add_flag(group, "top_p", default=1.0)
    add_flag(group, "min_p", default=0.0)
    add_flag(group, "max_tokens", default=256)
    group.add_argument(
        "--repeat", type=int, default=1, help="how many times to ask every question (1)"
    )
    add_flag(
        group, "seed", default=0, help="seed of the first time; later times use the next ones (0)"
    )
    group = parser.add_argument_group("drafting")
    text = (
        f"ask for N draft nodes in every round (as many as pay, {DEFAULT_NUM_DRAFT_TOKENS} at most)"
    )
    group.add_argument("--k", type=int, metavar="N", help=text)
    add_flag(group, "draft_model", help="checkpoint of the arm 'model'")
    add_flags(group, ("lookahead", "branching", "depth", "exit_threshold", "chain_rule"))
    add_flags(parser, ("dtype", "port", "adapter", "hosts"))
    group = parser.add_argument_group("other measurements")
    text = "where the time of a round goes, for the first arm that drafts"
    group.add_argument("--profile", action="store_true", help=text)
    text = "time and memory of a token after this much text, such as 1k,8k,32k"
    group.add_argument("--context", metavar="LIST", help=text)
    text = "replies whose text was predicted, with few and many lines changed, over plain"
    group.add_argument("--predictions", action="store_true", help=text)
    text = "replies that fit JSON schemas, over plain decoding under the same schemas"
    group.add_argument("--structured", action="store_true", help=text)
    group = parser.add_argument_group("a long run")
    group.add_argument("--out", metavar="FILE", help="append each conversation to this file")
    group.add_argument("--resume", action="store_true", help="skip what the file already has")
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON document instead")


def _add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", nargs="?", help="folder, GGUF file, hub id; defaults to the default model"
    )
    text = "names of drafters; a+b is a pool of both (all that need no download)"
    parser.add_argument("--drafters", default="", metavar="LIST", help=text)
    text = "full, rotating, quantised; samples are drawn with the first one (all of them)"
    parser.add_argument("--caches", default="full,rotating,quantised", metavar="LIST", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    group = parser.add_argument_group("how much")
    text = "lines of question_id, category and turns; defaults to that of bench"
    group.add_argument("--prompts", metavar="FILE", help=text)
    text = "the most questions per category (1)"
    group.add_argument("--limit", type=int, default=1, metavar="N", help=text)
    add_flag(group, "max_tokens", default=48)
    text = "sampled beginnings for each drafter; more tell smaller differences (500)"
    group.add_argument("--draws", type=int, default=500, metavar="N", help=text)
    group = parser.add_argument_group("drafting and caches")
    text = "draft nodes of every round, taken in turn: chains and trees (4,12)"
    group.add_argument("--k", default="4,12", metavar="LIST", help=text)
    add_flag(group, "draft_model", help="checkpoint of the drafter 'model'")
    add_flag(group, "lookahead")
    add_flag(group, "max_kv_size", default=64, help="rows of 'rotating' (64)")
    add_flag(group, "kv_bits", default=8, help="4 or 8, of 'quantised' (8)")
    add_flags(group, ("dtype", "port", "adapter"))
    title = "what all replies and samples must fit; give one of these"
    add_flag(_add_grammar_options(parser, title), "grammar")


def _add_prompt_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompt")
    group.add_argument("--prompt", metavar="TEXT")
    group.add_argument("--prompt-file", metavar="FILE", help="- reads standard input")
    text = "the prompt, after what is piped in; - alone reads standard input"
    group.add_argument("words", nargs="*", metavar="WORD", help=text)
    group.add_argument(
        "--raw", action="store_true", help="continue the text, without a chat template"
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    add_flags(group, LOAD_FLAGS)
    group.add_argument("--system", metavar="TEXT", help="system prompt")
    group.add_argument("--trace", metavar="FILE", help="append a trace of all events to this file")
    add_flags(parser.add_argument_group("reply"), REPLY_FLAGS)
