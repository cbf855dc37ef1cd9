"""The parser of the command line: all commands and their arguments, without MLX for `--help`."""

import argparse
import tomllib
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, NoReturn

from mlxspec import __version__
from mlxspec.errors import did_you_mean
from mlxspec.params import DEFAULT_NUM_DRAFT_TOKENS, KV_BITS_IN_WORDS
from mlxspec_app.sessions.servers import DEFAULT_URL
from mlxspec_cli.arguments import LOAD_FLAGS, REPLY_FLAGS, add_flag, add_flags, option
from mlxspec_cli.serve_options import add_serve_options
from mlxspec_cli.train_options import add_train_commands

_TRACE = "a file written by --trace"
_JSON = "print one JSON document instead"
_MODEL = "folder, GGUF file, hub id; defaults to the default model"


class _Help(argparse.HelpFormatter):
    """A help whose first line has no flags: they follow, each with what it does."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, [it for it in actions if not it.option_strings], (), prefix)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are a line each, and name the word that was probably meant."""

    def __init__(self, **how: Any) -> None:
        super().__init__(formatter_class=_Help, **how)

    def format_help(self) -> str:
        """Return the help, examples first."""
        usual, examples = super().format_help(), examples_of(self.prog)
        return "\n  ".join(["examples:", *examples]) + f"\n\n{usual}" if examples else usual

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            meant = did_you_mean(word, self._option_string_actions)
            self.error(f"unrecognized argument {word}{meant and f': {meant}'}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), choices) or f"choose from {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"{value!r} is not known; {hint}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` lists what it takes\n")


def examples_of(command: str) -> list[str]:
    """Return the lines of the shell that show a command."""
    text = files(__package__).joinpath("examples.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text).get(command, "")).splitlines()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `mlxspec` with all its commands."""
    parser = Parser(
        prog="mlxspec",
        description="Lossless speculative decoding on MLX, and a chat that shows it.",
    )
    parser.add_argument("--version", action="version", version=f"mlxspec {__version__}")
    debug = Parser(add_help=False)
    debug.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[debug])

    for name, (text, add_options) in _COMMANDS.items():
        add_options(add(name, text))
    text = "Make a drafter for a model from its own text."
    add_train_commands(commands.add_parser("train", help=text, description=text), debug)
    completion = add("completion", "Print a script that completes mlxspec in a shell.")
    shells = ("bash", "zsh", "fish", "tcsh")
    completion.add_argument("shell", choices=shells, help="the shell that will read it")
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
    option(parser, "--data-dir FOLDER", "where chats and settings are kept")
    option(parser, "--inline", "draw below the shell's prompt, not on the whole terminal")
    option(parser, "-c --continue", "continue the last chat", dest="goes_on")
    option(parser, "--plain", "plain lines, for pipes and screen readers")


def _add_generate_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompt")
    group.add_argument("--prompt", metavar="TEXT")
    option(group, "--prompt-file FILE", "- reads standard input")
    text = "the prompt, after what is piped in; - alone reads standard input"
    group.add_argument("words", nargs="*", metavar="WORD", help=text)
    option(group, "--raw", "continue the text, without a chat template")
    _add_settings(parser)
    option(parser, "--json", _JSON)
    text = "a text that the reply will mostly repeat, such as the file to edit: drafted from there"
    option(parser, "--prediction FILE", text, dest="prediction_file")
    _add_grammar_options(parser, "what the reply must fit, unless --json-schema is given")


def _add_replay_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help=_TRACE)
    parser.add_argument("--speed", type=float, default=1.0, help="1 is as recorded")


def _add_race_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help=_TRACE)
    parser.add_argument("b", metavar="B", help="another one, of the same prompt")
    option(parser, "--plain", "print the result; the exit code is 1 if they differ")
    option(parser, "--html OUT", "write a page that plays it and works offline")
    option(parser, "--animation OUT", "write a picture that plays it, as SVG")
    option(parser, "--cast OUT", "write a screencast for the terminal, asciicast v2")
    option(parser, "--force", "overwrite existing files")


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="TRACE", help=_TRACE)
    group = parser.add_argument_group("formats", "each takes a file to write, or - for stdout")
    option(group, "--html OUT", "a page that plays it and works offline")
    option(group, "--svg OUT", "a picture of the coloured text")
    option(group, "--animation OUT", "an animated picture")
    option(group, "--cast OUT", "a screencast for the terminal, asciicast v2")
    option(group, "--md OUT", "the conversation as Markdown, with figures")
    option(group, "--text OUT", "the conversation as Markdown, without figures")
    option(group, "--csv OUT", "a row for every round")
    option(parser, "--force", "overwrite existing files")


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    text = "measure what only a Mac can tell, in about ten minutes, and write a file to send"
    option(group, "--mac-report FILE", text)
    option(group, "--read-report FILE", "print what such a file says about the code's assumptions")
    text = "delete what was compared and measured here; the next load does it again"
    option(group, "--forget", text)
    text = "measure the link to other ranks, and say what decoding with them gives"
    add_flag(group, "hosts", help=text)
    text = "the model to measure with --hosts; defaults to the default model"
    add_flag(parser, "model", help=text)


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help=_MODEL)
    text = "arms: plain, or names of drafters; a+b is a pool of both"
    option(parser, "--arms LIST", text, "plain,auto")
    text = "other projects: mlx-lm, mlx-lm-draft, mlx-dspark, mlx-dspark-plain"
    option(parser, "--against LIST", text, default="")
    option(parser, "--baseline ARM", "the arm to compare with, instead of the first")
    group = parser.add_argument_group("questions")
    option(group, "--prompts FILE", "lines in Spec-Bench's format; defaults to the built-in set")
    option(group, "--categories LIST", "defaults to all", default="")
    option(group, "--limit N", "the most questions per category", type=int)
    option(group, "--temps LIST", "temperatures", "0")
    add_flag(group, "top_p", default=1.0)
    add_flag(group, "min_p", default=0.0)
    add_flag(group, "max_tokens", default=256)
    option(group, "--repeat REPEAT", "how many times to ask every question", 1)
    text = "seed of the first time; later times use the next ones (0)"
    add_flag(group, "seed", default=0, help=text)
    group = parser.add_argument_group("drafting")
    most = DEFAULT_NUM_DRAFT_TOKENS
    text = f"ask for N draft nodes in every round (as many as pay, {most} at most)"
    option(group, "--k N", text, type=int)
    add_flag(group, "draft_model", help="checkpoint of the arm 'model'")
    add_flags(group, ("lookahead", "branching", "depth", "exit_threshold", "chain_rule"))
    add_flags(parser, ("dtype", "port", "adapter", "hosts"))
    group = parser.add_argument_group("other measurements")
    option(group, "--profile", "where the time of a round goes, for the first arm that drafts")
    option(group, "--context LIST", "time and memory of a token after this much text, as 1k,8k,32k")
    text = "replies whose text was predicted, with few and many lines changed, over plain"
    option(group, "--predictions", text)
    text = "replies that fit JSON schemas, over plain decoding under the same schemas"
    option(group, "--structured", text)
    group = parser.add_argument_group("a long run")
    option(group, "--out FILE", "append each conversation to this file")
    option(group, "--resume", "skip what the file already has")
    option(parser.add_argument_group("output"), "--json", _JSON)


def _add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help=_MODEL)
    text = "names of drafters; a+b is a pool of both (all that need no download)"
    option(parser, "--drafters LIST", text, default="")
    text = "full, rotating, quantised; samples are drawn with the first one (all of them)"
    option(parser, "--caches LIST", text, default="full,rotating,quantised")
    text = "exact replies: tokens and logits are those of plain decoding, and no bit differs"
    option(parser, "--exact", text)
    option(parser, "--json", _JSON)
    group = parser.add_argument_group("how much")
    text = "lines of question_id, category and turns; defaults to that of bench"
    option(group, "--prompts FILE", text)
    option(group, "--limit N", "the most questions per category", 1)
    add_flag(group, "max_tokens", default=48)
    text = "sampled beginnings for each drafter; more tell smaller differences"
    option(group, "--draws N", f"{text} (500; none with --exact)", type=int)
    group = parser.add_argument_group("drafting and caches")
    option(group, "--k LIST", "draft nodes of every round, in turn: chains and trees", "4,12")
    add_flag(group, "draft_model", help="checkpoint of the drafter 'model'")
    add_flag(group, "lookahead")
    add_flag(group, "max_kv_size", default=64, help="rows of 'rotating' (64)")
    add_flag(group, "kv_bits", default=8, help=f"{KV_BITS_IN_WORDS}, of 'quantised' (8)")
    add_flags(group, ("dtype", "port", "adapter"))
    title = "what all replies and samples must fit; give one of these"
    add_flag(_add_grammar_options(parser, title), "grammar")


def _add_watch_options(parser: argparse.ArgumentParser) -> None:
    text = f"address of a server ({DEFAULT_URL})"
    parser.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL", help=text)
    option(parser, "--api-key KEY", "the server's key", default="")
    option(parser, "--ask TEXT", "send this prompt first")
    text = (
        "write the reply to this prompt twice, greedy, with guesses and by the model alone: a race"
    )
    option(parser, "--race TEXT", text)
    text = "the model for that prompt, where the server has several"
    option(parser, "--model NAME", text, default="")
    option(parser, "--plain", "print replies that are over, as without a terminal")


def _add_models_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="name, folder, GGUF file, hub id or default")
    option(parser, "--json", _JSON)
    option(parser, "--fetch", "download MODEL, or the default model")


def _add_grammar_options(parser: argparse.ArgumentParser, title: str) -> argparse._ActionsContainer:
    group = parser.add_argument_group(title)
    option(group, "--regex PATTERN", "a text that a regular expression matches as a whole")
    text = "a text of the grammar in a file, in Lark's syntax"
    option(group, "--grammar FILE", text, dest="grammar_file")
    option(group, "--choices TEXT,TEXT", "one of a few texts, separated by commas")
    return group


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    add_flags(group, LOAD_FLAGS)
    option(group, "--system TEXT", "system prompt")
    option(group, "--trace FILE", "append a trace of all events to this file")
    add_flags(parser.add_argument_group("reply"), REPLY_FLAGS)


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "chat": ("Chat with a model in the terminal.", _add_chat_options),
    "generate": ("Generate one reply: text to stdout, figures to stderr.", _add_generate_options),
    "replay": ("Replay a recorded trace; needs no model and no MLX.", _add_replay_options),
    "race": (
        "Play two recorded traces side by side and say whether they agree.",
        _add_race_options,
    ),
    "export": ("Turn a recorded trace into a page, a picture or a table.", _add_export_options),
    "doctor": ("Show what this machine runs on and what to improve.", _add_doctor_options),
    "bench": ("Measure drafters, and other projects, against plain decoding.", _add_bench_options),
    "verify": ("Check that drafts do not change what a model says.", _add_verify_options),
    "serve": ("Answer over HTTP as OpenAI's and Anthropic's servers do.", add_serve_options),
    "watch": ("Show what a server writes while it is written; needs no MLX.", _add_watch_options),
    "models": ("List the models that are here, or the drafters of one.", _add_models_options),
}
