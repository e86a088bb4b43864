"""The OpenAPI document and the page: made of the types, so that they cannot say anything else."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import get_args

import httpx

from ostinato.engine import ScriptedEngine
from ostinato.records import Payload

Start = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


async def test_the_document_and_the_page_have_every_kind(start: Start) -> None:
    """Each payload with its fields; every reference leads somewhere; the page loads nothing from elsewhere."""
    async with start(ScriptedEngine(lambda _: [])) as client:
        document = (await client.get("/openapi.json")).json()
        answer = await client.get("/docs")
    schemas = document["components"]["schemas"]
    page = answer.text
    for payload in get_args(Payload):
        assert schemas[payload.__name__]["properties"]["kind"]["enum"] == [payload.__struct_config__.tag]
        assert f"<code>{payload.__struct_config__.tag}</code>" in page
        for name in payload.__struct_fields__:
            assert name in schemas[payload.__name__]["properties"]
            assert f"<code>{name}</code>" in page
    assert set(_references(document)) <= {f"#/components/schemas/{name}" for name in schemas}
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "http://" not in page
    assert "https://" not in page


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _references(inner)]
    return [found for inner in value for found in _references(inner)] if isinstance(value, list) else []
