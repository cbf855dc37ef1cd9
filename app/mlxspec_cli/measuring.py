"""What the commands that take long share: lists in arguments."""


def words_of(text: str) -> list[str]:
    """Return the words of a list with commas between; empty ones are passed over."""
    return [word.strip() for word in text.split(",") if word.strip()]
