"""Refusals of arguments that would change the reply and have no equivalent here."""

from mlxspec.errors import UnsupportedOperationError


def refuse(name: str, value: object, reason: str) -> None:
    """Raise UnsupportedOperationError with the reason if an argument has a value."""
    if value:
        raise UnsupportedOperationError(f"{name} is not supported here: {reason}")
