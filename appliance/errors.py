"""Every error a client can see: one tree, each leaf with one HTTP status, type and code.

ApplianceError
├── InvalidRequest            400 invalid_request       names the field in `param`
│   └── ContextLengthExceeded 400 context_length_exceeded
├── InvalidApiKey             401 invalid_api_key
├── Forbidden                 403 forbidden
├── NotFound                  404 not_found
│   └── ModelNotFound         404 model_not_found
├── MethodNotAllowed          405 method_not_allowed
├── RequestTimeout            408 request_timeout
├── Cancelled                 409 cancelled
├── BodyTooLarge              413 body_too_large
├── RateLimitExceeded         429 rate_limit_exceeded
├── BranchShed                429 branch_shed
├── BudgetExceeded            429 budget_exceeded
├── InternalError             500 internal_error
│   └── EngineCrashed         500 engine_crashed
├── FrontierError             502 frontier_error
├── Overloaded                503 overloaded
│   ├── ModelLoading          503 model_loading
│   └── Offline               503 offline
└── DeadlineExceeded          504 deadline_exceeded
"""

from typing import ClassVar

from appliance.protocol import ErrorCode


class ApplianceError(Exception):
    """An error with a place in the HTTP contract. `message` is for the client: what is wrong, and what to do."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str] = "internal_error"
    default_retry_after_s: ClassVar[int | None] = None  # every 429 and 503 carries Retry-After

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s if retry_after_s is not None else self.default_retry_after_s

    def body(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class InvalidRequest(ApplianceError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class InvalidApiKey(ApplianceError):
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class Forbidden(ApplianceError):
    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(ApplianceError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(NotFound):
    code = "model_not_found"


class MethodNotAllowed(ApplianceError):
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class Cancelled(ApplianceError):
    """Its task was, by whom it belongs to."""

    status = 409
    type = "invalid_request_error"
    code = "cancelled"


class RequestTimeout(ApplianceError):
    status = 408
    type = "invalid_request_error"
    code = "request_timeout"


class BodyTooLarge(ApplianceError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class RateLimitExceeded(ApplianceError):
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    default_retry_after_s = 1


class BranchShed(ApplianceError):
    """The machine is saturated, and the request may be shed."""

    status = 429
    type = "overloaded_error"
    code = "branch_shed"
    default_retry_after_s = 1


class BudgetExceeded(ApplianceError):
    status = 429
    type = "rate_limit_error"
    code = "budget_exceeded"
    default_retry_after_s = 3600


class HeadersTooLarge(ApplianceError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class InternalError(ApplianceError):
    pass


class EngineCrashed(InternalError):
    code = "engine_crashed"


class FrontierError(ApplianceError):
    """No provider gave an answer, or the one that had begun broke off."""

    status = 502
    type = "upstream_error"
    code = "frontier_error"


class Overloaded(ApplianceError):
    status = 503
    type = "overloaded_error"
    code = "overloaded"
    default_retry_after_s = 1


class ModelLoading(Overloaded):
    code = "model_loading"
    default_retry_after_s = 2


class Offline(Overloaded):
    code = "offline"
    default_retry_after_s = 60


class DeadlineExceeded(ApplianceError):
    status = 504
    type = "timeout_error"
    code = "deadline_exceeded"


_BY_CODE: dict[ErrorCode, type[ApplianceError]] = {
    "invalid_request": InvalidRequest,
    "context_length_exceeded": ContextLengthExceeded,
    "model_not_found": ModelNotFound,
    "budget_exceeded": BudgetExceeded,
    "branch_shed": BranchShed,
    "engine_crashed": EngineCrashed,
    "frontier_error": FrontierError,
    "overloaded": Overloaded,
    "offline": Offline,
    "model_loading": ModelLoading,
    "deadline_exceeded": DeadlineExceeded,
}


def from_code(
    code: ErrorCode, message: str, param: str | None = None, *, retry_after_s: int | None = None
) -> ApplianceError:
    """The error for what an engine or a provider reported."""
    return _BY_CODE[code](message, param=param, retry_after_s=retry_after_s)
