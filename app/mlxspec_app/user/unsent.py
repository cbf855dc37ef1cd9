"""The text that was typed and not sent: kept in a file from one start of the chat to the next."""

from pathlib import Path

from mlxspec_app.user.private import make_private_folder
from mlxspec_app.user.whole_file import replace_file


class UnsentText:
    """Keeps one text; a chat that starts takes it."""

    def __init__(self, path: Path) -> None:
        """Keep the text in the file at `path`, which only the owner can read."""
        self._path = path

    def take(self) -> str:
        """Return the kept text and forget it; "" if there is none or it cannot be read."""
        try:
            text = self._path.read_text(encoding="utf-8")
            self._path.unlink()
        except (OSError, UnicodeDecodeError):
            return ""
        return text

    def keep(self, text: str) -> None:
        """Keep a text in place of the one before; "" keeps none.

        Raises:
            OSError: The file cannot be written or removed.
        """
        if text.strip():
            make_private_folder(self._path.parent)
            replace_file(self._path, text.encode("utf-8", errors="replace"))
        else:
            self._path.unlink(missing_ok=True)
