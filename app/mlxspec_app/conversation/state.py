"""The state of a session for the screen: plain data, without Textual or MLX.

Events change a state, in `conversation.fold`. The same events give the same state, from a model or
from a trace. So a replay looks like the recorded chat, and tests of the app need no model. A screen
itself changes only the queue, and waits.
"""

from dataclasses import dataclass, field
from typing import Literal

from mlxspec.trace.events import CostMeasured, DraftProposed
from mlxspec_app.conversation.events import LoadFailed, LoadProgress, ModelChoice, TableProgress
from mlxspec_app.conversation.messages import Message, Reply, without_system
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.speeds import Speeds

Phase = Literal["loading", "ready", "busy", "failed"]
"""`loading`: the models are being loaded; `ready`: a message can be sent; `busy`: an order is being
carried out, such as a reply; `failed`: there is no model."""


@dataclass
class ChatState:
    """The state of a session; an unknown name is ""."""

    phase: Phase = "loading"
    target: str = ""
    drafter: str = ""
    loading: LoadProgress | None = None
    table: TableProgress | None = None  # of a table that is being made
    messages: list[Message] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)  # problems, oldest first
    news: list[str] = field(default_factory=list)  # notices that report no problem
    choice: ModelChoice | None = None  # None where the user cannot choose
    load_failure: LoadFailed | None = None  # until the next message or load
    error: str = ""  # why there is no model
    queue: list[str] = field(default_factory=list)  # typed while the session could not take them
    context: int = 0  # tokens in the cache
    context_length: int = 0  # tokens that fit, or 0 if unknown
    is_full: bool = False  # whether the last turn has no reply because the context is full
    is_stopping: bool = False  # whether the user stopped the reply, or an earlier one
    system: str = ""  # the system prompt that was set
    earlier: tuple[tuple[int, ...], ...] = ()  # tokens of the replies that the drafter has seen
    speeds: Speeds = field(default_factory=Speeds)
    cost: CostMeasured | None = None  # in a recording of an earlier version
    has_own_forwards: bool = True  # else replies may share them, and their times tell nothing
    draft: DraftProposed | None = field(default=None, repr=False)  # its verdict has not come yet
    # Whether the next turn event may repeat the last message.
    repeats_turn: bool = field(default=False, repr=False)

    @property
    def reply(self) -> Reply | None:
        """The last reply, finished or not."""
        return next((m for m in reversed(self.messages) if isinstance(m, Reply)), None)

    @property
    def cut_reply(self) -> Reply | None:
        """The last message, if it is a reply that its limit, the user or a crash ended."""
        last = next(reversed(without_system(self.messages)), None)
        if not (isinstance(last, Reply) and last.is_finished and last.tokens):
            return None
        return last if last.reason in ("length", "cancelled", None) else None

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
