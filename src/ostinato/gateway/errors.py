"""Errors as clients of the OpenAI API expect them."""

import re

import msgspec

from ostinato.records import BadInputError, OstinatoError


class TooLargeError(OstinatoError):
    """The request body is larger than allowed (HTTP 413)."""

    status = 413
    kind = "invalid_request_error"
    code = "body_too_large"


class WrongMethodError(OstinatoError):
    """The path is known, but not with this method (HTTP 405)."""

    status = 405
    kind = "invalid_request_error"
    code = "method_not_allowed"


class KeyRefusedError(OstinatoError):
    """The API key is missing or unknown (HTTP 401)."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class ScopeError(OstinatoError):
    """The API key may not do this (HTTP 403)."""

    status = 403
    kind = "permission_error"
    code = "not_allowed"


def error_json(error: OstinatoError) -> bytes:
    """The body of an error in OpenAI's shape."""
    told = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": told})


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
