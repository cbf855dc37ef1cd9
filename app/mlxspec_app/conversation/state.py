"""The state of a session for the screen: plain data, without Textual or MLX.

Events change a state, in `conversation.fold`. The same events give the same state, from a model or
from a trace. So a replay looks like the recorded chat, and tests of the app need no model. A screen
itself changes only the queue, and waits.
"""

from dataclasses import dataclass, field
from typing import Literal

from mlxspec.trace.events import DraftProposed
from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.events import LoadFailed, LoadProgress, ModelChoice
from mlxspec_app.conversation.messages import EarlierReplies, Message, Reply
from mlxspec_app.conversation.rounds import Round

Phase = Literal["loading", "ready", "busy", "failed"]
"""`loading`: the models are being loaded; `ready`: a message can be sent; `busy`: an order is being
carried out, such as a reply; `failed`: there is no model."""


@dataclass
class ChatState:
    """The state of a session; an unknown name is "".

    Attributes:
        loading: The last progress of a download.
        notices: Problems to report to the user, oldest first.
        news: Notices that report no problem.
        choice: The models that are loaded or loading; None where the user cannot choose.
        load_failure: Why other models could not be loaded, until the next message or load.
        error: Why there is no model, or "".
        queue: Messages typed while the session could not take them.
        context: Tokens in the cache.
        context_length: Tokens that fit the context, or 0 if unknown.
        is_full: Whether the last turn has no reply because the context is full.
        is_stopping: Whether the user stopped the reply, or an earlier one.
        system: The system prompt that was set, or "".
        earlier: The replies that the drafter has seen.
        draft: The draft whose verdict has not come yet.
        repeats_turn: Whether the next turn event may repeat the last message.
    """

    phase: Phase = "loading"
    target: str = ""
    drafter: str = ""
    loading: LoadProgress | None = None
    messages: list[Message] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    choice: ModelChoice | None = None
    load_failure: LoadFailed | None = None
    error: str = ""
    queue: list[str] = field(default_factory=list)
    context: int = 0
    context_length: int = 0
    is_full: bool = False
    is_stopping: bool = False
    system: str = ""
    earlier: EarlierReplies = field(default_factory=EarlierReplies)
    baseline: Baseline = field(default_factory=Baseline)
    draft: DraftProposed | None = field(default=None, repr=False)
    repeats_turn: bool = field(default=False, repr=False)

    @property
    def reply(self) -> Reply | None:
        """The last reply, finished or not."""
        return next((m for m in reversed(self.messages) if isinstance(m, Reply)), None)

    @property
    def is_empty(self) -> bool:
        """Whether there are no messages; a system prompt does not count."""
        return all(message.role == "system" for message in self.messages)

    @property
    def last_round(self) -> Round | None:
        reply = self.reply
        return reply.rounds[-1] if reply is not None and reply.rounds else None

    def wait(self) -> None:
        """Let no message be sent until the session reports."""
        if self.phase != "loading":  # the session reports when that is over
            self.phase = "busy"
        self.is_stopping = False
