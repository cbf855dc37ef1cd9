"""Exports a conversation to a file in the background and shows the path."""

import asyncio

from textual.screen import Screen

from mlxspec.errors import TraceError
from mlxspec_app.conversation.state import ChatState
from mlxspec_app.export.filing import FORMATS, file_away, read_order, taken
from mlxspec_app.playback.events_of import events_of


def export(screen: Screen[None], state: ChatState, typed: str, title: str = "") -> None:
    """Write the file that `typed` asks for, or show why this is impossible.

    If `typed` is empty, this writes the page and lists the other formats.
    """
    try:
        order = read_order(typed)
    except ValueError as error:
        screen.notify(str(error), severity="warning", timeout=4)
        return
    events = events_of(state)  # now, as the conversation may continue meanwhile
    others = ", ".join(name for name in FORMATS if name != order.format.name)
    hint = "" if typed.strip() else f"; other formats: /export {others}"

    async def write() -> None:
        try:
            path, size = await asyncio.to_thread(file_away, order, events, title)
        except FileExistsError as error:
            problem = taken(error.filename)
        except TraceError:
            problem = "there is no reply to export yet"
        except OSError as error:
            problem = f"{error.filename} cannot be written: {error.strerror}"
        else:
            said = f"{path.resolve()} ({size / 1000:.0f} kB){hint}"
            screen.notify(said, title="Exported", timeout=6)
            return
        screen.notify(problem, severity="warning", timeout=6)

    screen.run_worker(write(), exit_on_error=False)
