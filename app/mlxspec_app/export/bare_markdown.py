"""The exact text of the conversation in Markdown, without figures."""

from mlxspec_app.export.markdown import conversation
from mlxspec_app.export.recording import Recording


def render(recording: Recording) -> str:
    """Return the conversation as Markdown without figures."""
    return conversation(recording, has_figures=False)
