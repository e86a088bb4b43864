"""The errors that people meet. Each names the thing, the value, and the next command to type."""


class OstinatoError(Exception):
    """The base of every error that we raise on purpose.

    `hint` is the next thing to do, as a sentence or a command; it is printed after the message. Over HTTP an error is
    its `status`, and `kind` and `code` are the type and the code that OpenAI's API gives.
    """

    status = 500
    kind = "server_error"
    code = "server_error"

    def __init__(self, message: str, *, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, hint, param)
        self.message = message
        self.hint = hint
        self.param = param

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.param))

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def _rebuild(cls: type[OstinatoError], message: str, hint: str, param: str | None) -> OstinatoError:
    return cls(message, hint=hint, param=param)


class BadInputError(OstinatoError, ValueError):
    """The caller sent something that cannot be accepted (HTTP 400)."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_request"


class ContextFullError(BadInputError):
    """The conversation does not fit into the model's context (HTTP 400, code `context_length_exceeded`)."""

    code = "context_length_exceeded"


class MissingError(OstinatoError, LookupError):
    """The thing that was named does not exist (HTTP 404)."""

    status = 404
    kind = "not_found_error"
    code = "not_found"


class ConflictError(OstinatoError):
    """The thing is held by someone else, or is not in the state that this needs (HTTP 409)."""

    status = 409
    kind = "conflict_error"
    code = "conflict"


class UnavailableError(OstinatoError):
    """A part that is needed does not answer now; trying again later may work (HTTP 503)."""

    status = 503
    kind = "service_unavailable_error"
    code = "service_unavailable"
