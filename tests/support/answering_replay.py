"""A recording that answers: each message that is sent plays the next recorded reply."""

from mlxspec.trace.events import (
    CostMeasured,
    GenerationFinished,
    GenerationStarted,
    SpeedupMeasured,
    TurnStarted,
)
from mlxspec_app.conversation.events import ChatCleared, ChatCut, ReplyDiscarded, SessionNotice
from mlxspec_app.conversation.orders import (
    Edit,
    NewChat,
    OpenChat,
    Regenerate,
    Say,
    SetSystem,
    Stop,
)
from mlxspec_app.playback.replay import ReplaySession

MEASURED = CostMeasured | SpeedupMeasured


class AnsweringReplay(ReplaySession):
    """A session for tests of the chat, with neither a model nor MLX."""

    def start(self):
        super().start()
        self._end = 0

    def send(self, order):
        match order:
            case Say(text):
                self.say(text)
            case Regenerate():
                started = [i for i in range(self.position) if self.holds(i, GenerationStarted)]
                self.news.append(ReplyDiscarded())
                self.play_reply(started[-1] if started else 0)
            case Edit(turn, text):
                self.news.append(ChatCut(turn))
                self.say(text)
            case NewChat():
                self.position = self._end = 0
                self.news.append(ChatCleared())
            case OpenChat(chat):
                self._end = self.position
                self.news.append(chat)
            case SetSystem(text):
                self.news.append(TurnStarted("system", text))
            case Stop() if self.busy:
                self.playhead.tick()
                moment = self.timeline.moments[max(0, self.position - 1)]
                self.position = self._end
                self.news.append(GenerationFinished(getattr(moment.event, "ts", 0.0), "cancelled"))
            case Stop():
                pass
            case _:
                super().send(order)

    def say(self, text):
        """Play the next reply; the message just sent replaces the recorded turn."""
        self.news.append(TurnStarted("user", text))
        if self.position >= len(self.timeline):
            self.position = 0
            self.news.append(
                SessionNotice("the recording is over and starts again", is_trouble=False)
            )
        while self.position < len(self.timeline) - 1 and self.holds(
            self.position, TurnStarted | MEASURED
        ):
            self.position += 1
        self.play_reply(self.position)

    def play_reply(self, start):
        """Play up to the end of a reply, and what was measured after it."""
        end = start
        while end < len(self.timeline) - 1 and self.timeline.moments[end].phase != "end":
            end += 1
        while end < len(self.timeline) - 1 and self.holds(end + 1, MEASURED):
            end += 1
        self.position, self._end = start, end + 1
        self.playhead.jump(self.timeline.time_of(start + 1))

    def holds(self, index, kind):
        return isinstance(self.timeline.moments[index].event, kind)
