"""Uses the chat for a long time and says whether anything grows: slow, by hand.

    python -m tests.campaigns.soak --minutes 60 --out FILE     an hour on the default model
    python -m tests.campaigns.soak --summarise FILE            the figures of a soak so far

It is the real app, drawn on no terminal: messages, stops, second replies, edits, branches, other
chats, other models and drafters, settings, by keys and commands and in an order that the seed
decides. Every turn appends a line to FILE, so one that was broken off still has its figures. Every
few turns a probe asks the same in an empty chat, with plain decoding; the probes are compared.
Ends with 1 if something grew.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from textual.pilot import WaitForScreenTimeout

from mlxspec.trace.events import (
    DraftVerified,
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PlainDecoded,
)
from mlxspec_app.run import collect_rarely
from mlxspec_app.screens.chat.screen import ChatScreen
from mlxspec_app.user_data import find_user_data
from mlxspec_cli.arguments import generation_params
from mlxspec_cli.chat_models import ChatCatalogue
from mlxspec_cli.commands import chat
from mlxspec_cli.parser import build_parser
from tests.campaigns.soak_figures import PROBE, give_up_cached, in_use, read_lines, summary
from tests.support.chat_folders import save_chat_folder

from tests.support.app_driver import running  # isort: skip - after tests.support.chat_folders, see there

BEAT_S, STOPPED_S = 0.2, 5.0  # a beat that comes so late was held up from outside
PATIENCE_S = 3600.0  # processes are stopped for minutes where machines are shared
PROBES_EVERY = 6
DEFAULT = "default"
PROBE_PROMPT = "Tell me a short story about a lighthouse keeper."
PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Write a Python function that merges two sorted lists.",
    "Give me three tips for a good night's sleep.",
    "What is the difference between a lake and a pond?",
    "Write a haiku about autumn leaves.\n\nThen write another one about snow.",
    "Name five animals that live in the desert.",
    "Why do we have leap years?",
    "Repeat this: " + "one two three four five six seven eight nine ten, " * 12,
    "Thank you. Go on.",
    "Ça va ? 你好 🙂 — say it in English.",
)
_WEIGHTS = {"say": 30, "stop": 10, "again": 8, "edit": 6, "version": 6, "fork": 3, "new": 3}
_WEIGHTS |= {"continue": 5, "model": 2, "draft": 4, "setting": 8, "look": 6, "verify": 2}
_WEIGHTS |= {"export": 2, "rename": 2}
_COMMANDS = {
    "setting": (
        *("/temp 0.8", "/temp 0", "/top_p 0.9", "/top_p 1", "/k 4", "/k 31", "/max 16", "/max 32"),
        *("/theme", "/ink", "/stats", "/tree", "/tree mask", "/system Be brief.", "/system -"),
    ),
    "look": ("/chats", "/settings", "/help", "/context", "/replay", "/model", "/search leap"),
    "draft": ("/draft pool", "/draft none", "/draft suffix", "/draft auto"),
}


class Times:
    """When what happened in a turn, by the wall's clock and by the processor's.

    The events count as they are published: a frame that shows the first one a moment later would
    add the work of the tokens behind it.
    """

    def __init__(self):
        self.begun, self.first, self.ended = _now(), None, None
        self.tokens = self.first_tokens = 0
        self.drafter = self.outcome = ""

    def take_in(self, event):
        match event:
            case GenerationStarted():
                self.drafter = event.drafter
            case DraftVerified() | PlainDecoded():
                if self.first is None:
                    self.first, self.first_tokens = _now(), len(event.emit)
                self.tokens += len(event.emit)
            case GenerationFinished():
                self.ended, self.outcome = _now(), event.reason
            case GenerationFailed():
                self.ended, self.outcome = _now(), f"failed: {event.message}"

    def figures(self):
        line = {"tokens": self.tokens, "drafter": self.drafter, "outcome": self.outcome}
        line |= dict.fromkeys(("first_ms", "first_cpu_ms", "ms_per_token", "cpu_ms_per_token"))
        if self.first is not None:
            line["first_ms"], line["first_cpu_ms"] = _between(self.begun, self.first)
            more = self.tokens - self.first_tokens
            if self.ended is not None and more > 0:
                wall, cpu = _between(self.first, self.ended)
                line["ms_per_token"], line["cpu_ms_per_token"] = wall / more, cpu / more
        return line


def _now():
    return time.perf_counter(), time.process_time()


def _between(start, end):
    """Return milliseconds of the wall and of the processor."""
    return 1e3 * (end[0] - start[0]), 1e3 * (end[1] - start[1])


class Heart:
    """Counts the time in which this process was not stopped by others."""

    def __init__(self):
        self.hours, self._last = 0.0, time.monotonic()

    async def beat(self):
        while True:
            now = time.monotonic()
            self.hours += (now - self._last if now - self._last < STOPPED_S else BEAT_S) / 3600
            self._last = now
            await asyncio.sleep(BEAT_S)


class Soaker:
    """A user of the app who never tires."""

    def __init__(self, driver, draw, models, folder):
        self._driver, self._draw, self._models, self._folder = driver, draw, models, folder
        self.times = Times()
        conversation_driver = driver.session._driver
        publish = conversation_driver._publish

        def watched(event):
            self.times.take_in(event)
            publish(event)

        conversation_driver._publish = watched

    async def turn(self, number):
        """Do something, wait for what comes of it, and return the line that tells it."""
        await self._home()
        is_probe = number % PROBES_EVERY == 0
        (action,) = (PROBE,) if is_probe else self._draw.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        self.times = Times()
        await getattr(self, f"_{action}", lambda: self._command(action))()
        await self._idle()
        model = self._driver.session._loaded
        name = "" if model is None else Path(model.model).name or DEFAULT
        if is_probe:
            give_up_cached()
        return {"turn": number, "action": action, "model": name} | self.times.figures() | in_use()

    async def _probe(self):
        if self._driver.session._loaded.model != self._models[0].replace(DEFAULT, ""):
            await self._enter(f"/model {self._models[0]}")
        await self._enter("/new")
        before = self._driver.session.settings.adjustable()
        for line in ("/temp 0", "/top_p 1", "/k 0", "/max 24", "/system -"):
            await self._enter(line)
        self.times = Times()
        await self._enter(PROBE_PROMPT)
        for name in ("temp", "top_p", "k", "max"):
            await self._enter(f"/{name} {before[name]}")

    async def _say(self):
        await self._enter(self._draw.choice(PROMPTS))

    async def _stop(self):
        num_tokens = self._draw.randrange(12)
        await self._enter(self._draw.choice(PROMPTS), waits=False)
        await self._until(lambda: self.times.tokens >= num_tokens or self._is_idle)
        await self._press("escape")

    async def _again(self):
        await self._enter(self._draw.choice(("/retry new", "/retry same")))

    async def _edit(self):
        await self._enter("/edit")
        await self._enter(self._draw.choice(PROMPTS))

    async def _version(self):
        self._driver.screen.action_version(self._draw.choice((-1, 1)))

    async def _model(self):
        await self._enter(f"/model {self._draw.choice(self._models)}")
        await self._say()

    async def _draft(self):
        await self._enter(self._draw.choice(_COMMANDS["draft"]))
        await self._say()

    async def _look(self):
        await self._enter(self._draw.choice(_COMMANDS["look"]))
        await self._press(*self._draw.choices(("down", "up", "tab", "right"), k=3))

    async def _export(self):
        kind = self._draw.choice(("html", "svg", "cast", "md", "csv"))
        await self._enter(f"/export {kind} {self._folder / 'export'}.{kind} --force")

    async def _rename(self):
        await self._enter(f"/rename chat {self._draw.random():.3f}")

    async def _command(self, action):
        await self._enter(self._draw.choice(_COMMANDS.get(action, (f"/{action}",))))

    async def _home(self):
        """Leave whatever screen is in front of the chat, and what is being edited."""
        await self._until(self._leave)
        await self._idle()
        if self._driver.screen.outbox.is_editing:
            await self._press("escape")

    async def _leave(self):
        if isinstance(self._driver.app.screen, ChatScreen):
            return True
        await self._press("escape")
        return False

    async def _enter(self, line, *, waits=True):
        from mlxspec_app.widgets.chat.prompt import Prompt

        self._driver.screen.query_one(Prompt).text = line
        self._driver.screen.query_one(Prompt).focus()
        await self._press("enter")
        if waits:
            await self._idle()

    async def _press(self, *keys):
        with suppress(WaitForScreenTimeout):  # a process that was stopped meanwhile
            await self._driver.pilot.press(*keys)

    @property
    def _is_idle(self):
        screen = self._driver.app.screen_stack[0]
        return screen.state.phase in ("ready", "failed") and not self._driver.session.busy

    async def _idle(self):
        await asyncio.sleep(0.05)  # a command is carried out after the key that gives it
        await self._until(lambda: self._is_idle)

    async def _until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self._driver.app.is_running, "the app has ended"
            met = condition()
            if await met if asyncio.iscoroutine(met) else met:
                return
            assert time.monotonic() < deadline, f"waited in vain:\n{self._driver.shown}"
            await asyncio.sleep(0.01)


async def soak(options, folder):
    """Use the app until the time is over or the turns are done; append a line per turn."""
    other = str(save_chat_folder(folder / "other"))
    args = build_parser().parse_args(["chat", "--data-dir", str(folder), "--max-tokens", "24"])
    args.model = None if options.model == DEFAULT else options.model
    user_data = find_user_data(folder)
    user_data.catalogue, user_data.stores_chats = ChatCatalogue(), True
    chosen = chat.filled_in(args, user_data.settings)
    session = chat._session(chosen, generation_params(chosen))
    collect_rarely()
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    try:
        async with running(session, user_data=user_data) as driver:
            models = (options.model, other)
            soaker = Soaker(driver, random.Random(options.seed), models, folder)
            number = 0
            while 60 * heart.hours < options.minutes and number < options.turns:
                line = await soaker.turn(number)
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"hours": heart.hours} | line) + "\n")
                number += 1
    finally:
        beating.cancel()
        session.close()
        user_data.close()


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="in which it runs (60)")
    parser.add_argument("--turns", type=int, default=sys.maxsize, help="end after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default=DEFAULT, help="the one that is probed")
    parser.add_argument("--out", type=Path, default=Path("soak.jsonl"), metavar="FILE")
    parser.add_argument("--summarise", type=Path, metavar="FILE", help="figures of such a file")
    options = parser.parse_args(argv)
    if options.summarise is None:
        options.out.write_text("")
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(soak(options, Path(folder)))
    text, is_steady = summary(read_lines(options.summarise or options.out))
    print(text)
    return 0 if is_steady else 1


if __name__ == "__main__":
    sys.exit(main())
