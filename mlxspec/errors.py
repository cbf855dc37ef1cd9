"""The errors a user can meet; every message says what was got, what is allowed and what to do."""


class MlxspecError(Exception):
    """Base of every error that mlxspec raises on purpose."""


class ModelNotFoundError(MlxspecError):
    """No checkpoint under that name: not a folder, not a file, not cached, not reachable."""


class UnsupportedModelError(MlxspecError):
    """A checkpoint that is there but cannot be run: wrong family, file type or tensors."""


class VocabularyMismatchError(MlxspecError):
    """Target and draft model do not read the same tokenizer."""


class ContextLengthError(MlxspecError):
    """More tokens than the model was built for.

    Attributes:
        context_length: Tokens that it takes, or 0 where that is not told.
    """

    def __init__(self, message: str, context_length: int = 0) -> None:
        """Say what does not fit."""
        super().__init__(message)
        self.context_length = context_length


class UnsupportedOperationError(MlxspecError):
    """The model or decoder has no such capability."""


class EngineClosedError(MlxspecError):
    """An engine was used after it had been closed."""


class StaleReplyError(MlxspecError):
    """A reply of a chat was read on after the chat had gone on without it."""


class NumericsError(MlxspecError):
    """A model computed no numbers: some of its logits are NaN or infinite."""


class CacheError(MlxspecError):
    """A cache was asked for rows that it does not hold."""


class TraceError(MlxspecError):
    """A trace file that cannot be read."""
