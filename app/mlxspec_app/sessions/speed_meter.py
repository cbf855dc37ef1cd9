"""Compares each reply of a model with plain decoding."""

from mlxspec.trace.events import Event, GenerationStarted, SpeedupMeasured
from mlxspec_app.conversation.figures import GREEDY
from mlxspec_app.conversation.fold import apply
from mlxspec_app.conversation.messages import Reply
from mlxspec_app.conversation.speeds import speedup
from mlxspec_app.conversation.state import ChatState


class SpeedMeter:
    """Follows the replies of one model: a state of its own holds the last reply."""

    def __init__(self) -> None:
        self._state = ChatState()
        self._compared: Reply | None = None

    def forget_replies(self) -> None:
        """Forget the replies so far, because another drafter has not seen them."""
        self._state = ChatState()

    def record(self, event: Event) -> None:
        if isinstance(event, GenerationStarted):
            before = self._state
            self._state = ChatState(speeds=before.speeds, earlier=before.earlier)
        apply(self._state, event)

    @property
    def counts(self) -> bool:
        """Whether the last reply's speed predicts that of new ones: no copy, no loop."""
        reply = self._state.reply
        return reply is None or not (reply.is_copy or reply.is_loop)

    @property
    def is_sampled(self) -> bool:
        started = self._state.reply.started if self._state.reply else None
        return started is not None and started.lossless != GREEDY

    def compare(self) -> SpeedupMeasured | None:
        """Return the speed-up of the last reply over plain decoding, once; None without one."""
        reply = self._state.reply
        if reply is None or reply is self._compared or reply.reason is None:
            return None
        self._compared = reply
        gain, copied = speedup(reply), reply.num_copied
        return SpeedupMeasured(gain, copied=copied) if gain or copied else None
