"""`mlxspec generate`: one reply; text on standard output, figures on standard error."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from mlxspec import api
from mlxspec.chat.conversation import Conversation
from mlxspec.drafting.auto import Choice
from mlxspec.files import NotTextError, decoded
from mlxspec.loading.exactness import exact_form
from mlxspec.trace import events
from mlxspec.trace.events import Event, text_of
from mlxspec.trace.file import TraceWriter
from mlxspec.trace.reply_text import ReplyText
from mlxspec_cli.arguments import generation_params, options, read_file
from mlxspec_cli.output import for_output, say, tell_drafter_failure, tell_end

_LONG_PROMPT = 1024  # tokens


def run(args: Namespace) -> int:
    """Generate one reply and print it."""
    prompt = _read_prompt(args)
    params = generation_params(args)
    if args.prediction_file is not None:
        predicted = read_file(Path(args.prediction_file), "prediction")
        params = replace(params, prediction=predicted)
    if args.raw and params.chat_template_args:
        raise ValueError(
            "--chat-template-arg has no effect with --raw, which uses no chat template: leave one "
            "of them out"
        )
    prepared = api.prepare(args.model or None, options(args), say=say)
    printer, engine = _Printer(prepared.choice, as_json=args.json), prepared.engine
    if args.raw or not engine.tokenizer.has_chat_template:
        if params.exact or engine.exact:  # a conversation says it by itself
            exact_form(engine.target, say)
        reply = engine.generate(prompt, params)
    else:
        reply = Conversation(engine, args.system, say=say).reply(prompt, params)
    with ExitStack() as stack:
        trace = stack.enter_context(TraceWriter(args.trace)) if args.trace else None
        for event in reply:
            if trace:
                trace.write(event)
            printer.show(event)
    return 0


def _read_prompt(args: Namespace) -> str:
    if sum((args.prompt is not None, args.prompt_file is not None, bool(args.words))) > 1:
        raise ValueError("give one prompt: as words, by --prompt TEXT or by --prompt-file FILE")
    if args.prompt is not None:
        prompt = str(args.prompt)
    elif args.prompt_file is not None and args.prompt_file != "-":
        prompt = read_file(Path(args.prompt_file), "prompt")
    else:
        prompt = _piped_and_typed(["-"] if args.prompt_file else args.words)
    if not prompt.strip():
        raise ValueError("the prompt is empty: give it some text")
    return prompt


def _piped_and_typed(words: Sequence[str]) -> str:
    """Return the text from a pipe, and below it the words of the command line."""
    reads_terminal = list(words) == ["-"]
    typed = "" if reads_terminal else " ".join(words)
    if sys.stdin.isatty() and not reads_terminal:
        if not typed:
            raise ValueError(
                "give a prompt: mlxspec generate WORDS, --prompt TEXT, --prompt-file FILE, or "
                "text through a pipe"
            )
        return typed
    try:
        piped = decoded(sys.stdin.read().encode(errors="surrogateescape"))
    except NotTextError as error:
        raise ValueError(f"the text on standard input is {error}") from error
    return f"{piped.rstrip()}\n\n{typed}" if typed and piped.strip() else piped or typed


class _Printer:
    """Streams a reply, or collects it for one JSON document."""

    def __init__(self, choice: Choice, *, as_json: bool) -> None:
        self._choice, self._as_json = choice, as_json
        self._tokens, self._text = list[int](), ReplyText()
        self._started: events.GenerationStarted | None = None
        self._bar: tqdm[None] | None = None

    def show(self, event: Event) -> None:
        match event:
            case events.GenerationStarted():
                self._started = event
            case events.PrefillProgress():
                self._show_prefill(event.done, event.total)
            case events.DraftVerified() | events.PlainDecoded():
                self._tokens += [token.token for token in event.emit]
                self._write(event)
            case events.DrafterFailed():
                tell_drafter_failure(event)
            case events.GenerationFinished():
                self._finish(event)

    def _show_prefill(self, done: int, total: int) -> None:
        """Draw a progress bar on standard error for a long prompt; none in a pipe."""
        if self._bar is None:
            is_hidden = total < _LONG_PROMPT or not sys.stderr.isatty()
            title = "reading the prompt"
            self._bar = tqdm(total=total, desc=title, unit="tok", leave=False, disable=is_hidden)
        self._bar.update(done - self._bar.n)
        if done == total:
            self._bar.close()

    def _write(self, event: Event) -> None:
        self._text.add(event)
        if not self._as_json:
            print(for_output(text_of(event)), end="", flush=True)

    def _finish(self, event: events.GenerationFinished) -> None:
        self._write(event)
        assert self._started is not None
        about = self._started
        if not self._as_json:
            print()
            tell_end(event, self._choice.drafter)
            if self._choice.speeds:
                print(f"{self._choice.drafter} was {self._choice.reason}", file=sys.stderr)
            return
        names = (
            "weights",
            "drafter",
            "cache",
            "drafts",
            "sampling",
            "seed",
            "exact",
            "device",
            "blas",
        )
        document = {
            "text": self._text.text,
            "reasoning": self._text.reasoning,
            "answer": self._text.answer,
            "tokens": self._tokens,
            "finish_reason": event.reason,
            "stats": {
                **event.stats,
                "model": about.target,
                **{name: getattr(about, name) for name in names},
                "drafter_choice": self._choice.as_dict(),
            },
        }
        print(json.dumps(document, ensure_ascii=sys.stdout.isatty()))
