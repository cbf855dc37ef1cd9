"""The view of the text, as the user chose it."""

from collections.abc import Callable

from mlxspec_app.conversation.inks import INKS, Ink, ink_named, next_ink
from mlxspec_app.conversation.views import DEFAULT_VIEW, XRAY, View, next_view, view_named


class ViewChoice:
    """Selects the view of the text and the ink of the X-ray."""

    def __init__(
        self, show: Callable[[View, Ink], None], keep: Callable[[str, str], None] | None = None
    ) -> None:
        """`show` draws the text; `keep` stores a setting's name and value (None: nothing)."""
        self.view, self.ink = DEFAULT_VIEW, INKS[0]
        self._show, self._keep = show, keep

    def use(self, view: View, ink: Ink) -> None:
        self.view, self.ink = view, ink
        self._show(view, ink)

    def choose(self, name: str = "") -> None:
        """Use the named view, else the next one, and store the choice."""
        self.use(view_named(name) if name else next_view(self.view), self.ink)
        if self._keep is not None:
            self._keep("view", self.view.name)

    def choose_ink(self, name: str = "") -> None:
        """Show the X-ray in the named ink; without a name, switch a shown X-ray to the next ink."""
        ink = ink_named(name) if name else self.ink
        if not name and self.view is XRAY:
            ink = next_ink(self.ink)
        self.use(XRAY, ink)
