"""The one exception of the frontier leg that others meet."""

from appliance.protocol import ErrorCode


class FrontierFailed(Exception):
    """No answer, or no more of it. The message is for a client."""

    def __init__(
        self, code: ErrorCode, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
