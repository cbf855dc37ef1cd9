"""Text that was typed but not sent: a file keeps it until the chat's next start."""

from pathlib import Path

from mlxspec_app.user.files import make_private_folder, replace_file


class UnsentText:
    """Stores one text; the next chat takes it."""

    def __init__(self, path: Path) -> None:
        """Use the file at `path`, which only the owner can read."""
        self._path = path

    def take(self) -> str:
        """Return the stored text and remove it; "" if there is none or it cannot be read."""
        try:
            text = self._path.read_text(encoding="utf-8")
            self._path.unlink()
        except (OSError, UnicodeDecodeError):
            return ""
        return text

    def keep(self, text: str) -> None:
        """Store a text in place of the previous one; "" removes it."""
        if text.strip():
            make_private_folder(self._path.parent)
            replace_file(self._path, text.encode("utf-8", errors="replace"))
        else:
            self._path.unlink(missing_ok=True)
