"""The bottom row: the mode if letters are keys, and the keys with their meanings.

Keys stay in the order of the screen's own table. Textual's order depends on the focus: a key that a
text area also binds would jump to the front. If the row is too short, whole keys are dropped from
its end; the keys that lead to all others are dropped last.
"""

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.widgets._footer import FooterKey

_LEADING = ("app.help", "app.palette", "view.ink")
_GAPS, _NARROW_GAPS, _MODE_GAP = 3, 2, 3
"""Cells around a key and its meaning: usually, in a narrow terminal, and for the mode."""


class KeyFooter(Footer):
    """Shows the keys that can be pressed now.

    The footer recreates its key widgets when the focus moves, and each of them watches `compact`.
    Textual drops the watchers of removed widgets only when `compact` changes, which never happens.
    So `compose` triggers that change.
    """

    DEFAULT_CSS = """
    KeyFooter > .mode {
        width: auto;
        height: 1;
        padding: 0 1;
        margin: 0 1 0 0;
        text-style: bold reverse;
    }
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._width = 0

    def compose(self) -> ComposeResult:
        self.mutate_reactive(Footer.compact)
        if not self._bindings_ready:
            return
        mode = str(getattr(self.screen, "mode", ""))
        shown = self._fitting(shown_bindings(self.screen), mode)
        self.styles.grid_size_columns = len(shown) + bool(mode)
        if mode:
            yield Static(mode, classes="mode")
        for active in shown:
            binding = active.binding
            yield FooterKey(
                binding.key,
                self.app.get_key_display(binding),
                binding.description,
                binding.action,
                disabled=not active.enabled,
                tooltip=active.tooltip,
            ).data_bind(compact=Footer.compact)

    def on_resize(self) -> None:
        if self._width != self.app.size.width:
            self.refresh(recompose=True)

    def _fitting(self, shown: list[ActiveBinding], mode: str) -> list[ActiveBinding]:
        """Return the keys that fit next to the mode, in their order."""
        self._width = self.app.size.width
        width = sum(map(self._width_of, shown)) + (cell_len(mode) + _MODE_GAP if mode else 0)
        left, going = list(shown), shown[::-1]
        going.sort(key=lambda active: active.binding.id in _LEADING)
        for active in going:
            if width <= self._width:
                break
            left.remove(active)
            width -= self._width_of(active)
        return left

    def _width_of(self, active: ActiveBinding) -> int:
        gaps = _NARROW_GAPS if self.screen.has_class("-narrow") else _GAPS
        key = self.app.get_key_display(active.binding)
        return cell_len(key) + cell_len(active.binding.description) + gaps


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
