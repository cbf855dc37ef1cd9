"""What happens when a chat no longer fits the context: the settings decide, or a dialog asks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Checkbox, OptionList, Static
from textual.widgets.option_list import Option

from mlxspec_app.conversation.events import AnyEvent, ContextFull, ModelChoice
from mlxspec_app.conversation.messages import turns_of
from mlxspec_app.conversation.orders import ForgetOldest, Load, NewChat, Regenerate, Say
from mlxspec_app.screens.conversation.feed import Feed
from mlxspec_app.screens.conversation.screen import ConversationScreen
from mlxspec_app.screens.steady import Dialog
from mlxspec_app.settings.file import Settings
from mlxspec_app.widgets.chat.key_footer import KeyFooter

Way = Literal["drop", "rotate", "new"]
"""`drop`: leave out the oldest turns; `rotate`: use a rotating cache; `new`: start a new chat."""

_MUTED = "$spec-muted"
_WAYS: dict[Way, tuple[str, str]] = {  # name and meaning
    "drop": (
        "Drop the oldest turns",
        "The model no longer sees them. Its answers to the rest are still exactly its own.",
    ),
    "rotate": (
        "Continue with a rotating cache",
        "The model is reloaded, and forgets its oldest tokens as it writes. This changes what "
        "the model itself says; drafts still change nothing.",
    ),
    "new": (
        "Start a new chat with this message",
        "The model sees none of the earlier turns.",
    ),
}


class ContextAnswer(NamedTuple):
    """The user's answer; with `is_for_good`, it applies from now on without asking."""

    way: Way
    is_for_good: bool


class TickBox(Checkbox):
    """A checkbox that is empty while it is off; Textual's own shows a dim X."""

    BUTTON_INNER = " "

    def watch_value(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


class ContextFullScreen(Dialog[ContextAnswer | None]):
    """Asks the user; Escape leaves the turn without a reply."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Cancel")]

    def __init__(self, ways: Sequence[Way], context_length: int) -> None:
        """Offer the ways that can get a reply; `context_length` is in tokens, 0 if unknown."""
        super().__init__()
        self.ways, self._context_length = ways, context_length

    def compose(self) -> ComposeResult:
        limit = f" of {self._context_length} tokens" if self._context_length else ""
        fits = "The chat no longer fits" if "new" in self.ways else "This message alone exceeds"
        question = f"{fits} the model's context{limit}."
        options = [
            Content.assemble((name, "$foreground bold"), "\n", (meaning, _MUTED))
            for name, meaning in map(_WAYS.__getitem__, self.ways)
        ]
        with Vertical(classes="box"):
            yield Static(Content.styled(question, "$foreground bold"))
            yield OptionList(*map(Option, options), compact=True)
            yield TickBox("always do this (F5 changes it)", value=False)
            yield Static(Content.styled("Enter chooses · Tab, Space · Esc cancels", _MUTED))
        yield KeyFooter()

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        is_for_good = self.query_one(Checkbox).value
        self.dismiss(ContextAnswer(self.ways[event.option_index], is_for_good))


class ContextOverflow:
    """Gets a reply to a turn that the session refused because it does not fit the context."""

    def __init__(self, feed: Feed, screen: ConversationScreen) -> None:
        self._feed, self._screen = feed, screen
        self._drops = False
        self._fits_alone = True  # whether the refused turn fits in a chat of its own
        self._tried: ModelChoice | None = None  # a choice that failed is not tried again

    def follow_settings(self, before: Settings, settings: Settings) -> None:
        """Let the session leave out the oldest turns if the settings allow it."""
        if settings.context_full != before.context_full:
            self._drop_oldest(settings.context_full == "drop")

    def handle(self, event: AnyEvent) -> None:
        if isinstance(event, ContextFull):
            self._fits_alone = event.fits_alone
            self._screen.call_after_refresh(self._resolve)

    def ways(self) -> list[Way]:
        ways: list[Way] = ["drop", "rotate", "new"]
        turns = turns_of(self._feed.state.messages)
        has_earlier = any(turn.reply is not None for turn in turns[:-1])
        if self._drops or not has_earlier or not self._fits_alone:
            ways = ["rotate"]  # the turn alone is too long
        if self._rotating() in (None, self._tried):
            ways.remove("rotate")
        return ways

    def follow_answer(self, answer: ContextAnswer | None) -> None:
        """Carry out the user's answer; None leaves the turn without a reply."""
        if answer is None:
            return
        self._carry_out(answer.way)
        if answer.is_for_good:
            self._screen.app.change("context_full", answer.way)

    def _resolve(self) -> None:
        ways = self.ways()
        policy = self._screen.app.settings.context_full
        if policy != "ask" and policy in ways:
            self.follow_answer(ContextAnswer(policy, is_for_good=False))
        elif ways:
            question = ContextFullScreen(ways, self._feed.state.context_length)
            self._screen.app.push_screen(question, self.follow_answer)

    def _carry_out(self, way: Way) -> None:
        if way == "new":
            text = turns_of(self._feed.state.messages)[-1].user
            self._feed.send(NewChat())
            self._feed.send(Say(text))
            return
        if way == "drop":
            self._drop_oldest(True)
        elif (rotating := self._rotating()) is not None:
            self._tried = rotating
            self._feed.send(Load(rotating))
        self._feed.send(Regenerate())

    def _drop_oldest(self, allowed: bool) -> None:
        if allowed != self._drops:
            self._drops = allowed
            self._feed.session.send(ForgetOldest(allowed))  # changes nothing on the screen

    def _rotating(self) -> ModelChoice | None:
        """Return the loaded models with a rotating cache; None if they do not support one."""
        state = self._feed.state
        if state.choice is None or state.choice.max_kv_size is not None or not state.context_length:
            return None
        return replace(state.choice, max_kv_size=state.context_length)
