"""Reading a request's body without trusting its size, and noticing that a client has gone."""

from starlette.types import Receive, Scope

from ostinato.gateway.errors import TooLargeError
from ostinato.records import BadInputError


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    """The whole body, or None when the client went away meanwhile.

    A body that says it is too large is refused before it is read, one that turns out to be at the first byte too many.
    """
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise BadInputError("Compressed bodies are not read.", hint="Send the JSON plain.", param="content-encoding")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise _too_large(int(length), limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > limit:
            raise _too_large(size, limit)
        if not message.get("more_body", False):
            return b"".join(parts)


async def wait_gone(receive: Receive) -> None:
    """Return when the client has gone away (or the answer has been sent)."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        f"The request body has at least {size} bytes; at most {limit} are read.", hint="Send a shorter conversation."
    )
