"""Errors as clients of the OpenAI API expect them."""

import re
from typing import Any

import msgspec

from ostinato.records import BadInputError, ContextFullError, OstinatoError


class TooLargeError(OstinatoError):
    """The request body is larger than allowed (HTTP 413)."""

    status = 413
    kind = "invalid_request_error"


class KeyRefusedError(OstinatoError):
    """The API key is missing or unknown (HTTP 401)."""

    status = 401
    kind = "authentication_error"


class ScopeError(OstinatoError):
    """The API key may not do this (HTTP 403)."""

    status = 403
    kind = "permission_error"


_CODES = {
    400: "invalid_request",
    401: "invalid_api_key",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
}
_CODES |= {409: "conflict", 413: "body_too_large", 503: "service_unavailable"}


def error_body(message: str, *, kind: str, status: int, param: str | None = None, code: str = "") -> bytes:
    """The JSON body of an error in OpenAI's shape."""
    error: dict[str, Any] = {
        "message": message,
        "type": kind,
        "param": param,
        "code": code or _CODES.get(status, "server_error"),
    }
    return msgspec.json.encode({"error": error})


def error_json(error: OstinatoError) -> bytes:
    """The same for one of our errors."""
    code = error.code if isinstance(error, ContextFullError) else ""
    return error_body(str(error), kind=error.kind, status=error.status, param=error.param, code=code)


_PATH = re.compile(r" - at `\$(.*)`$")
_FIELD = re.compile(r"(?:missing required|unknown) field `([^`]+)`")


def decode_error(error: Exception, what: str, root: str = "") -> BadInputError:
    """A JSON decoding error of msgspec as ours, with the field that it is about. `root` is the path of what was
    decoded inside the body."""
    text = str(error)
    if isinstance(error, RecursionError):
        return BadInputError(f"{what} is nested too deeply.", hint="Send flatter JSON.", param=root or None)
    if not isinstance(error, msgspec.ValidationError):
        return BadInputError(f"{what} is no valid JSON: {text}.", hint="Send UTF-8 JSON.", param=root or None)
    at, field = _PATH.search(text), _FIELD.search(text)
    param = root + (at.group(1) if at else "")
    if field:
        param = f"{param}.{field.group(1)}"
    param = param.lstrip(".")
    return BadInputError(f"{what}: {_PATH.sub('', text)} (at {param or 'the top'}).", param=param or None)
