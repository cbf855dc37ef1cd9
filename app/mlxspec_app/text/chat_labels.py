"""Labels of a chat: its default title and its age in a list, and that of its files of rows."""

from datetime import datetime
from hashlib import sha256

TITLE_CHARACTERS = 60
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DAYS_COUNTED = 7


def title_of(text: str) -> str:
    """Return the start of the first line that has text, or ""."""
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else line[: TITLE_CHARACTERS - 1].rstrip() + "…"


def label_of(first_message: str) -> str:
    """Return the label of the files with the rows of a chat, as in `Conversation.keep_rows`."""
    return sha256(first_message.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def ago(then: float, now: float) -> str:
    """Return the time from one moment to another, such as `3 minutes ago` or `12 Mar 2025`.

    Both are seconds since 1970. If `now` is before `then`, it counts as `then`. The words are
    coarse enough to stay correct while the list is open.
    """
    passed = now - then
    if passed < _MINUTE:
        return "just now"
    if passed < _HOUR:
        return _counted(int(passed // _MINUTE), "minute")
    if passed < _DAY:
        return _counted(int(passed // _HOUR), "hour")
    day, today = datetime.fromtimestamp(then), datetime.fromtimestamp(now)
    days = (today.date() - day.date()).days
    if days == 1:
        return "yesterday"
    if days < _DAYS_COUNTED:
        return _counted(days, "day")
    year = "" if day.year == today.year else f" {day.year}"
    return f"{day.day} {day:%b}{year}"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'} ago"
