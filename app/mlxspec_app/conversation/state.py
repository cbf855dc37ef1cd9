"""What a screen shows of a session: plain data, no Textual, no MLX.

Only `conversation.fold.apply` changes a state. The same events give the same state whether a model
makes them now or a trace holds them, which is why a replay looks like the chat that it recorded,
and why the app can be tested without a model.
"""

from dataclasses import dataclass, field
from typing import Literal

from mlxspec.trace.events import DraftProposed
from mlxspec_app.conversation.baseline import Baseline
from mlxspec_app.conversation.messages import Message, Reply
from mlxspec_app.conversation.rounds import Round
from mlxspec_app.conversation.session import LoadFailed, LoadProgress, ModelChoice

Phase = Literal["loading", "ready", "busy", "failed"]
"""`loading`: the models are not there yet; `ready`: a message can be sent; `busy`: a reply is
being written; `failed`: there is no model."""


@dataclass
class ChatState:
    """All that is known about a session.

    Attributes:
        phase: What the session is doing.
        target: Name of the target model, or "".
        drafter: Name of the drafter, or "".
        loading: The last progress of loading, while it loads.
        messages: The conversation.
        notices: Things to tell the user, oldest first.
        choice: The models that are loaded or being loaded; None where no others can be.
        load_failure: Why other models could not be loaded, until something else is done.
        error: Why there is no model, or "".
        queue: Messages typed while the session could not take them.
        context: Tokens in the cache.
        context_length: Tokens the model can hold, or 0 while that is not known.
        is_full: Whether the last turn was not answered because the context is full.
        system: The system prompt that was set, or "".
        baseline: What plain decoding would give, and whether drafting falls short of it.
        draft: The draft whose verdict has not come yet.
        repeats_turn: Whether the next turn may say again what stands on the screen.
    """

    phase: Phase = "loading"
    target: str = ""
    drafter: str = ""
    loading: LoadProgress | None = None
    messages: list[Message] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    choice: ModelChoice | None = None
    load_failure: LoadFailed | None = None
    error: str = ""
    queue: list[str] = field(default_factory=list)
    context: int = 0
    context_length: int = 0
    is_full: bool = False
    system: str = ""
    baseline: Baseline = field(default_factory=Baseline)
    draft: DraftProposed | None = field(default=None, repr=False)
    repeats_turn: bool = field(default=False, repr=False)

    @property
    def reply(self) -> Reply | None:
        """The last reply, finished or not."""
        return next((m for m in reversed(self.messages) if isinstance(m, Reply)), None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said yet; a system prompt does not count."""
        return all(message.role == "system" for message in self.messages)

    @property
    def last_round(self) -> Round | None:
        """The last finished round of the last reply."""
        reply = self.reply
        return reply.rounds[-1] if reply is not None and reply.rounds else None
