"""What the server refuses: a status, and a message that says what is allowed."""


class Refusal(Exception):
    """A request that is not answered.

    Attributes:
        status: The HTTP status.
        param: The field of the request that it is about, or "".
        retry_s: Seconds after which the client may ask again; 0 where that does not help.
    """

    def __init__(self, status: int, message: str, param: str = "", retry_s: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.retry_s = retry_s
