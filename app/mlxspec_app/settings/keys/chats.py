"""The keys of the list of chats: of the list, of its screen, and of the search field."""

from textual.binding import Binding

LIST = (
    Binding(
        "up,k",
        "move(-1)",
        "Up",
        show=False,
        id="chats.up",
        tooltip="in the list of chats: the chat above",
    ),
    Binding(
        "down,j",
        "move(1)",
        "Down",
        show=False,
        id="chats.down",
        tooltip="in the list of chats: the chat below",
    ),
    Binding(
        "pageup,p",
        "page(-1)",
        "Page up",
        show=False,
        id="chats.page_up",
        tooltip="in the list of chats: a page up",
    ),
    Binding(
        "pagedown,o",
        "page(1)",
        "Page down",
        show=False,
        id="chats.page_down",
        tooltip="in the list of chats: a page down",
    ),
    Binding(
        "home,g",
        "end(-1)",
        "First",
        show=False,
        id="chats.first",
        tooltip="in the list of chats: the newest chat",
    ),
    Binding(
        "end,G",
        "end(1)",
        "Last",
        show=False,
        id="chats.last",
        tooltip="in the list of chats: the oldest one shown",
    ),
    Binding("enter", "choose", "Open", id="chats.open", tooltip="in the list of chats: open it"),
)

HISTORY = (
    Binding(
        "slash",
        "search",
        "Search",
        key_display="/",
        id="chats.search",
        tooltip="in the list of chats: search all of them",
    ),
    Binding(
        "r",
        "rename",
        "Rename",
        key_display="r",
        id="chats.rename",
        tooltip="in the list of chats: rename the chat",
    ),
    Binding(
        "d,delete",
        "delete",
        "Delete",
        key_display="d",
        id="chats.delete",
        tooltip="in the list of chats: delete the chat",
    ),
    Binding(
        "u",
        "undelete",
        "Undo",
        key_display="u",
        id="chats.undelete",
        tooltip="in the list of chats: restore the last deleted one, until the app quits",
    ),
    Binding(
        "n",
        "new",
        "New",
        key_display="n",
        id="chats.new",
        tooltip="in the list of chats: start a new one",
    ),
    Binding(
        "escape",
        "back",
        "Back",
        id="chats.back",
        tooltip="in the list of chats: back to the conversation",
    ),
    Binding(
        "f",
        "fork",
        "Fork",
        show=False,
        key_display="f",
        id="chats.fork",
        tooltip="in the list of chats: add a copy of the chat",
    ),
)

SEARCH = (
    Binding("up", "move(-1)", show=False, id="chats.hit_up", tooltip="the previous match"),
    Binding("down", "move(1)", show=False, id="chats.hit_down", tooltip="the next match"),
    Binding("ctrl+c", "back", "Back", show=False, priority=True, id="chats.quit", tooltip="back"),
)
