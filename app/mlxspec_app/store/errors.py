"""Errors of the chat store; screens name them without importing SQLite."""

from mlxspec.errors import MlxspecError


class StoreError(MlxspecError):
    """The store cannot be opened, read or written."""


class DamagedStoreError(StoreError):
    """The file is not a database, or parts of it are lost."""


class GoneError(StoreError):
    """The chat or the message is not in the store, or not any more."""
