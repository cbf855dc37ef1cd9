"""A chat of two turns; the second is answered with the first in mind, and reads only its own."""

import mlxspec
from mlxspec.trace.events import PrefillProgress, text_of

chat = mlxspec.Conversation(mlxspec.load(), system="You are brief.")
params = mlxspec.GenerationParams(max_tokens=60)
for turn in ("Name three planets.", "Which of them is the largest?"):
    print(f"\n> {turn}")
    for event in chat.reply(turn, params):
        if isinstance(event, PrefillProgress) and event.done == event.total:
            print(f"({event.reused} of {event.total} tokens were in the cache)")
        print(text_of(event), end="", flush=True)
print()
