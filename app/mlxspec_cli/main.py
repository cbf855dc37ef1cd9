"""The command line: argparse to function, no logic.

Exit codes: 0 for success, 2 for a bad argument, 1 for anything else that went wrong, 130 after
Ctrl-C. `--debug` shows the traceback of an error that is otherwise one line.
"""

import argparse
import errno
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from mlxspec import __version__
from mlxspec.device import backend
from mlxspec.errors import MlxspecError
from mlxspec.params import CHAIN_RULES, DEFAULT_NUM_DRAFT_TOKENS, DTYPES
from mlxspec_cli.streams import mend_streams
from mlxspec_cli.train_options import add_train_commands

_WITHOUT_MLX = ("replay", "race", "export", "doctor", "completion", "man")
_CHECKS_ITSELF = ("chat",)  # its app opens before MLX is there
_DRAWN = ("chat", "replay", "race")  # they collect garbage again once they run
_SHELLS = ("bash", "zsh", "fish", "tcsh")
_DRAFTER_HELP = (
    "none, suffix, table, pool, medusa, eagle3, exit, model; or where a trained drafter lies; or "
    "several with commas between, as one pool; left out, auto: whatever is fastest here"
)
_LEARN_HELP = (
    "keep what the table learns from run to run, on this disk and for you alone; parts of what was "
    "said can be told from it (chat keeps it, generate does not)"
)

_DTYPE_HELP = (
    "in which floating-point type the model computes; auto is float32 on a CPU, and on a GPU what "
    "the weights are stored in, where that is wide enough (auto)"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    mend_streams()
    args = None
    try:
        with _flushed_output():
            args = _parser().parse_args(argv)
            return _run(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0  # the reader has gone
    except (ValueError, MlxspecError, OSError, RuntimeError, MemoryError) as error:
        if args is not None and args.debug:
            raise
        from mlxspec_cli.saying import say  # only those who err wait for it

        say(_told(error))
        return 2 if isinstance(error, ValueError) else 1


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Write what was printed while a failure can still be told; `--help` exits from the block."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # Keep the interpreter from flushing into it once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


def _run(args: argparse.Namespace) -> int:
    if args.command not in (*_WITHOUT_MLX, *_CHECKS_ITSELF):
        backend.check()
    if args.command in _DRAWN:
        gc.disable()  # what is imported stays: walking it costs a tenth of the start
    # Imported late, for the same reason.
    code: int = import_module(f"mlxspec_cli.commands.{args.command}").run(args)
    return code


def _told(error: Exception) -> str:
    """Return an error in words; one of a full disk says what to do."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        place = error.filename or "the output"
        return f"{place} cannot be written: {error.strerror}; make room, or write elsewhere"
    return str(error) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
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

    chat = add("chat", "Chat with a model in the terminal.")
    _add_model_options(chat)
    _add_sampling_options(chat)
    chat.add_argument("--data-dir", metavar="FOLDER", help="where chats and settings are kept")
    chat.add_argument(
        "--inline", action="store_true", help="below the prompt, not on the whole terminal"
    )
    text = "go on with the last chat"
    chat.add_argument("-c", "--continue", dest="goes_on", action="store_true", help=text)
    chat.add_argument("--plain", action="store_true", help="bare lines, for pipes and readers")
    generate = add("generate", "Generate one reply: text to stdout, figures to stderr.")
    _add_prompt_options(generate)
    _add_model_options(generate)
    _add_sampling_options(generate)
    generate.add_argument("--json", action="store_true", help="print one JSON document instead")
    replay = add("replay", "Replay a recorded trace; needs no model and no MLX.")
    replay.add_argument("file", help="a file written by --trace")
    replay.add_argument("--speed", type=float, default=1.0, help="1 is as recorded")
    race = add("race", "Play two recorded traces side by side and say whether they agree.")
    race.add_argument("a", metavar="A", help="a file written by --trace")
    race.add_argument("b", metavar="B", help="another one, of the same prompt")
    race.add_argument("--plain", action="store_true", help="print the outcome, 1 if they differ")
    _add_export_options(add("export", "Turn a recorded trace into a page, a picture or a table."))
    reports = add(
        "doctor", "Say what this machine runs on and what to improve."
    ).add_mutually_exclusive_group()
    text = "measure what only a Mac can tell, in ten minutes, into a file to be sent"
    reports.add_argument("--mac-report", metavar="FILE", help=text)
    text = "compare such a file with what the tests assume"
    reports.add_argument("--read-report", metavar="FILE", help=text)
    _add_bench_options(
        add("bench", "Measure drafters, and other projects, against plain decoding.")
    )
    _add_verify_options(add("verify", "Check that drafts do not change what a model says."))
    models = add("models", "List the models that are here, or the drafters of one.")
    models.add_argument("model", nargs="?", help="folder, GGUF file, hub id or default")
    models.add_argument("--json", action="store_true", help="print one JSON document instead")
    models.add_argument("--fetch", action="store_true", help="fetch the default model")
    text = "Make a drafter for a model from its own text."
    add_train_commands(commands.add_parser("train", help=text, description=text), debug)
    completion = add("completion", "Print a script that completes mlxspec in a shell.")
    completion.add_argument("shell", choices=_SHELLS, help="the shell that will read it")
    for described in (completion, add("man", "Print the manual page.")):
        described.set_defaults(parser=parser)  # it is all that they tell of
    return parser


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="TRACE", help="a file written by --trace")
    group = parser.add_argument_group("formats", "each takes a file to write, or - for stdout")
    group.add_argument("--html", metavar="OUT", help="one page that plays it, works offline")
    group.add_argument("--svg", metavar="OUT", help="a picture of the coloured text")
    group.add_argument("--animation", metavar="OUT", help="the picture, playing by itself")
    group.add_argument("--cast", metavar="OUT", help="a film for the terminal, asciicast v2")
    group.add_argument("--md", metavar="OUT", help="the conversation as Markdown")
    group.add_argument("--csv", metavar="OUT", help="a row for every round")
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def _add_bench_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="folder, GGUF file, hub id; left out, the default")
    text = "who writes: plain, or words of --drafter; a+b is a pool of both (plain,auto)"
    parser.add_argument("--arms", default="plain,auto", metavar="LIST", help=text)
    text = "other projects: mlx-lm, mlx-lm-draft, mlx-dspark, mlx-dspark-plain"
    parser.add_argument("--against", default="", metavar="LIST", help=text)
    parser.add_argument("--baseline", metavar="ARM", help="compare with this one, not the first")
    group = parser.add_argument_group("questions")
    text = "lines of question_id, category and turns, as Spec-Bench has them; left out, the own set"
    group.add_argument("--prompts", metavar="FILE", help=text)
    group.add_argument("--categories", default="", metavar="LIST", help="left out, all")
    group.add_argument("--limit", type=int, metavar="N", help="questions per category at most")
    group.add_argument("--temps", default="0", metavar="LIST", help="temperatures (0)")
    group.add_argument("--max-tokens", type=int, default=256, help="most tokens of a reply (256)")
    group.add_argument("--repeat", type=int, default=1, help="ask everything so often (1)")
    group.add_argument("--seed", type=int, default=0, help="of the first time; then the next (0)")
    group = parser.add_argument_group("drafting")
    text = (
        f"ask for N draft nodes in every round (as many as pay, {DEFAULT_NUM_DRAFT_TOKENS} at most)"
    )
    group.add_argument("--k", type=int, metavar="N", help=text)
    group.add_argument("--draft-model", help="checkpoint of the arm 'model'")
    group.add_argument(
        "--lookahead", type=int, default=4, help="longest chain of a draft model (4)"
    )
    parser.add_argument("--dtype", choices=DTYPES, default="auto", help=_DTYPE_HELP)
    _add_drafting_options(group)
    group = parser.add_argument_group("other measurements")
    text = "where the time of a round goes, for the first arm that drafts"
    group.add_argument("--profile", action="store_true", help=text)
    text = "time and memory of a token after so much text, such as 1k,8k,32k"
    group.add_argument("--context", metavar="LIST", help=text)
    group = parser.add_argument_group("a long run")
    group.add_argument("--out", metavar="FILE", help="append each conversation to this file")
    group.add_argument("--resume", action="store_true", help="leave out what the file has")


def _add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="folder, GGUF file, hub id; left out, the default")
    text = "words of --drafter; a+b is a pool of both (all that need no download)"
    parser.add_argument("--drafters", default="", metavar="LIST", help=text)
    text = "full, rotating, quantised; the first one is drawn with too (all of them)"
    parser.add_argument("--caches", default="full,rotating,quantised", metavar="LIST", help=text)
    group = parser.add_argument_group("how much")
    text = "lines of question_id, category and turns; left out, the set of bench"
    group.add_argument("--prompts", metavar="FILE", help=text)
    text = "questions per category at most (1)"
    group.add_argument("--limit", type=int, default=1, metavar="N", help=text)
    group.add_argument("--max-tokens", type=int, default=48, help="most tokens of a reply (48)")
    text = "sampled beginnings for each drafter; more tell smaller differences (500)"
    group.add_argument("--draws", type=int, default=500, metavar="N", help=text)
    group = parser.add_argument_group("drafting and caches")
    text = "draft nodes of every round, taken in turn: chains and trees (4,12)"
    group.add_argument("--k", default="4,12", metavar="LIST", help=text)
    group.add_argument("--draft-model", help="checkpoint of the drafter 'model'")
    group.add_argument(
        "--lookahead", type=int, default=4, help="longest chain of a draft model (4)"
    )
    group.add_argument("--max-kv-size", type=int, default=64, help="rows of 'rotating' (64)")
    group.add_argument("--kv-bits", type=int, default=8, help="4 or 8, of 'quantised' (8)")
    group.add_argument("--dtype", choices=DTYPES, default="auto", help=_DTYPE_HELP)


def _add_prompt_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("prompt")
    group.add_argument("--prompt", metavar="TEXT")
    group.add_argument("--prompt-file", metavar="FILE", help="- reads standard input")
    group.add_argument("stdin", nargs="?", choices=["-"], help="read the prompt from there")
    group.add_argument("--raw", action="store_true", help="continue the text, no chat template")


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", help="folder, GGUF file or hub id; left out, the default model")
    group.add_argument("--drafter", metavar="WORD|FILE|FOLDER|ID|LIST", help=_DRAFTER_HELP)
    group.add_argument("--draft-model", help="checkpoint that drafts (drafter 'model')")
    group.add_argument(
        "--lookahead", type=int, default=4, help="longest chain of a draft model (4)"
    )
    group.add_argument("--num-draft-tokens", type=int, help="draft nodes per round at most (31)")
    _add_drafting_options(group)
    group.add_argument("--max-kv-size", type=int, help="rows of a rotating cache; left out, full")
    group.add_argument("--keep", type=int, default=4, help="first tokens never evicted (4)")
    group.add_argument("--kv-bits", type=int, help="4 or 8: quantised keys and values")
    group.add_argument("--dtype", choices=DTYPES, default="auto", help=_DTYPE_HELP)
    group.add_argument("--learn", action=argparse.BooleanOptionalAction, help=_LEARN_HELP)
    group.add_argument("--system", metavar="TEXT", help="system prompt")
    group.add_argument("--trace", metavar="FILE", help="append what happens to this file")


def _add_drafting_options(group: argparse._ArgumentGroup) -> None:
    text = "children of a draft node at most; left out, the drafter decides"
    group.add_argument("--branching", type=int, metavar="N", help=text)
    text = "longest path of a draft; left out, the drafter decides"
    group.add_argument("--depth", type=int, metavar="N", help=text)
    text = "the drafter 'exit' goes on while it is so sure, more than 0 and at most 1"
    group.add_argument("--exit-threshold", type=float, metavar="X", help=text)
    text = "how chains drawn at random are verified; both keep the law (block)"
    group.add_argument("--chain-rule", choices=CHAIN_RULES, help=text)


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")  # without defaults: a chat has its own
    group.add_argument("--max-tokens", type=int, help="most tokens of a reply (512)")
    group.add_argument("--temp", type=float, help="temperature; 0 is greedy (0)")
    group.add_argument("--top-p", type=float, help="nucleus mass, 1 for all (1)")
    group.add_argument("--top-k", type=int, help="most probable tokens, 0 for all (0)")
    group.add_argument("--min-p", type=float, help="share of the best, 0 for all (0)")
    group.add_argument("--repetition-penalty", type=float, metavar="X")
    group.add_argument("--presence-penalty", type=float, metavar="X")
    group.add_argument("--frequency-penalty", type=float, metavar="X")
    group.add_argument("--seed", type=int, help="left out, drawn at random")
    text = "the text of plain sampling with this seed, whatever drafts; accepts a little less"
    group.add_argument("--exact-seed", action="store_true", help=text)
    group.add_argument("--stop", action="append", default=[], metavar="TEXT", help="may repeat")
    text = "a token that ends the reply, by its id; may repeat"
    group.add_argument(
        "--stop-token", action="append", default=[], type=int, metavar="ID", help=text
    )
