"""The bottom line: the mode if letters are keys, and the keys with their meanings.

Keys stand in the order of the screen's own table. The order of Textual depends on the focus: a key
that a text area also has would jump to the front. Where a row has no room for all of them, whole
keys are left out from its end; those that lead to all the others stay longest.
"""

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Static
from textual.widgets._footer import FooterKey

_LEADING = ("app.help", "app.palette", "view.ink")


class KeyFooter(Footer):
    """The keys that can be pressed now.

    The footer makes all its key widgets again when the focus moves, and each of them watches
    `compact`. Textual drops the watchers of removed widgets only when `compact` changes, which
    never happens: so `compose` triggers it.
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

    def compose(self) -> ComposeResult:
        self.mutate_reactive(Footer.compact)
        if not self._bindings_ready:
            return
        shown = shown_bindings(self.screen)
        mode = str(getattr(self.screen, "mode", ""))
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
                classes="-leading" if binding.id in _LEADING else "",
            ).data_bind(compact=Footer.compact)

    async def recompose(self) -> None:
        await super().recompose()
        self._fit()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Show the keys that have room."""
        width = sum(self._width_of(child) for child in self.children)
        for key in self._least_needed_first():
            key.display = width <= self.size.width
            width -= 0 if key.display else self._width_of(key)

    def _least_needed_first(self) -> Iterator[FooterKey]:
        keys = [*self.query(FooterKey)]
        yield from (key for key in reversed(keys) if not key.has_class("-leading"))
        yield from (key for key in reversed(keys) if key.has_class("-leading"))

    def _width_of(self, child: Widget) -> int:
        inner = child.get_content_width(self.size, self.app.size)
        return inner + child.gutter.width + child.styles.margin.width


def shown_bindings(screen: Screen[object]) -> list[ActiveBinding]:
    """Return one binding for each action to show: those of the focus, then those of the screen."""
    own = screen.focused.BINDINGS if screen.focused is not None else []
    order = [binding.action for binding in own if isinstance(binding, Binding)]
    order += [binding.action for _, binding in screen._bindings]
    places = {action: place for place, action in reversed([*enumerate(order)])}
    found: dict[str, ActiveBinding] = {}
    for active in screen.active_bindings.values():
        if active.binding.show:
            found.setdefault(active.binding.action, active)
    return sorted(found.values(), key=lambda active: places.get(active.binding.action, -1))
