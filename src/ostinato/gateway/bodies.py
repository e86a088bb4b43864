"""Reading a request's body without trusting its size, and noticing that a client has gone."""

import zlib

from starlette.types import Receive, Scope

from ostinato.gateway.errors import TooLargeError
from ostinato.records import BadInputError


async def read_body(scope: Scope, receive: Receive, limit: int, *, gzip: bool = False) -> bytes | None:
    """The whole body, or None when the client went away meanwhile. With `gzip` it may be compressed so.

    A body that says it is too large is refused before it is read, one that turns out to be at the first byte too many,
    compressed or not.
    """
    encoding = dict(scope["headers"]).get(b"content-encoding", b"identity")
    if encoding == b"gzip" and gzip:
        body = await _read(scope, receive, limit)
        return None if body is None else _unzipped(body, limit)
    if encoding != b"identity":
        raise BadInputError("Compressed bodies are not read.", hint="Send the JSON plain.", param="content-encoding")
    return await _read(scope, receive, limit)


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    headers = dict(scope["headers"])
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


def _unzipped(body: bytes, limit: int) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        found = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadInputError(f"The body is not gzip: {error}.", param="content-encoding") from None
    if len(found) > limit:
        raise _too_large(len(found), limit)
    if not reader.eof:
        raise BadInputError("The body ends in the middle of its gzip stream.", param="content-encoding")
    return found


async def wait_gone(receive: Receive) -> None:
    """Return when the client has gone away (or the answer has been sent)."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        f"The request body has at least {size} bytes; at most {limit} are read.", hint="Send a shorter conversation."
    )
