"""The bottom row: the mode if letters are keys, and the keys with their meanings.

Keys stay in the order of the screen's own table; Textual's depends on the focus. If the row is too
short, whole keys are dropped from its end; the keys that lead to all others are dropped last.
"""

from typing import ClassVar

from textual.binding import ActiveBinding, Binding
from textual.content import Content
from textual.events import Leave, MouseDown, MouseMove
from textual.reactive import reactive
from textual.screen import Screen
from textual.style import Style
from textual.widget import Widget

_LEADING = ("app.help", "app.palette", "view.ink")
_MODE = Style(bold=True, reverse=True)


class KeyFooter(Widget, can_focus=False):
    """Shows the keys that can be pressed now; a click presses one.

    A widget for each key, made again whenever the focus moves, would cost more than the rest.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"key-footer--{part}" for part in ("key", "meaning", "pointed-at")
    }
    _pointed_at: reactive[str] = reactive("")

    def __init__(self) -> None:
        super().__init__()
        self._active: list[ActiveBinding] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._update)

    def _update(self, screen: Screen[object]) -> None:
        if self.app.app_focus:
            self._active = shown_bindings(screen)
            self.refresh()  # the mode may be another one

    def render(self) -> Content:
        mode = str(getattr(self.screen, "mode", ""))
        before = Content.assemble(" ", (mode, _MODE), "  ") if mode else Content("")
        return Content.assemble(before, *self._fitting(self.app.size.width - before.cell_length))

    def on_mouse_move(self, event: MouseMove) -> None:
        self._pointed_at = event.style.meta.get("key", "")
        self.tooltip = event.style.meta.get("tooltip")

    def on_leave(self, event: Leave) -> None:
        self._pointed_at = ""

    def on_mouse_down(self, event: MouseDown) -> None:
        meta = event.style.meta
        if meta.get("is_enabled"):
            self.app.simulate_key(meta["key"])
        elif "key" in meta:
            self.app.bell()

    def _style(self, part: str) -> Style:
        return self.get_visual_style(f"key-footer--{part}")

    def _drawn(self, active: ActiveBinding) -> Content:
        binding = active.binding
        margin = " " * self.get_component_styles("key-footer--key").padding.left
        drawn = Content.assemble(
            (f"{margin}{self.app.get_key_display(binding)} ", self._style("key")),
            (f"{binding.description} ", self._style("meaning")),
        )
        if binding.key == self._pointed_at:
            drawn = drawn.stylize(self._style("pointed-at"))
        meta = {"key": binding.key, "tooltip": active.tooltip, "is_enabled": active.enabled}
        return drawn.stylize(Style.from_meta(meta) + Style(dim=not active.enabled or None))

    def _fitting(self, room: int) -> list[Content]:
        """Return the keys that fit into `room` cells, as they are drawn, in their order."""
        left = [(active, self._drawn(active)) for active in self._active]
        width, going = sum(drawn.cell_length for _, drawn in left), left[::-1]
        going.sort(key=lambda pair: pair[0].binding.id in _LEADING)
        for pair in going:
            if width <= room:
                break
            left.remove(pair)
            width -= pair[1].cell_length
        return [drawn for _, drawn in left]


def shown_bindings(screen: Screen[object]) -> list[ActiveBinding]:
    """Return one binding per visible action: those of the focused widget, then the screen's."""
    own = screen.focused.BINDINGS if screen.focused is not None else []
    order = [binding.action for binding in own if isinstance(binding, Binding)]
    order += [binding.action for _, binding in screen._bindings]
    places = {action: place for place, action in reversed([*enumerate(order)])}
    found: dict[str, ActiveBinding] = {}
    for active in screen.active_bindings.values():
        if active.binding.show:
            found.setdefault(active.binding.action, active)
    return sorted(found.values(), key=lambda active: places.get(active.binding.action, -1))
