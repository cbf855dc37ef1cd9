"""Refused requests: a status, and a message that says what is allowed."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class Refusal(Exception):
    """A refused request.

    Attributes:
        status: HTTP status.
        param: The request field at fault, or "".
        retry_s: Seconds until the client may retry; 0 if a retry cannot help.
    """

    def __init__(self, status: int, message: str, param: str = "", retry_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.retry_s = retry_s

    def body(self, path: str) -> dict[str, Any]:
        """Return the error document in the format of the API at `path`: Anthropic's or OpenAI's."""
        kind, message = self.kind, str(self)
        if path.startswith("/v1/messages"):
            kind = "api_error" if kind == "server_error" else kind
            return {"type": "error", "error": {"type": kind, "message": message}}
        error = {"type": kind, "message": message}
        return {"error": {**error, "param": self.param or None, "code": self.code}}

    def answer(self, path: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        wait = {"Retry-After": str(self.retry_s)} if self.retry_s else {}
        return JSONResponse(self.body(path), self.status, {**wait, **(headers or {})})

    @property
    def kind(self) -> str:
        """Error type in OpenAI's APIs."""
        other = "server_error" if self.status >= 500 else "invalid_request_error"
        return _KINDS.get(self.status, other)

    @property
    def code(self) -> str | None:
        """Error code in OpenAI's APIs; None if they have none for it."""
        is_model = self.status == 404 and self.param == "model"
        return "model_not_found" if is_model else _CODES.get(self.status)
