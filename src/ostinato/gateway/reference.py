"""GET /openapi.json and GET /docs: what can be sent here, for machines and people, made of the types that check it."""

import inspect
import typing
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup, escape
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

import ostinato
from ostinato.records import EditHunk, FeedbackEvent, Payload

_REF = "#/components/schemas/{name}"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Field(Struct, frozen=True):
    """One field as the page shows it. default: as JSON, "" where the field must be sent."""

    name: str
    kind: str
    default: str


class Kind(Struct, frozen=True):
    """One kind of report as the page shows it. words: what it means, by paragraph."""

    name: str
    words: list[str]
    fields: list[Field]


@cache
def openapi() -> bytes:
    """The OpenAPI 3.1 document, JSON."""
    _, schemas = msgspec.json.schema_components([FeedbackEvent], ref_template=_REF)
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    event = {"$ref": _REF.format(name="FeedbackEvent")}
    answer = {"description": "What became of each report: stored, duplicate, parked, unknown or opted_out (not kept)."}
    error = {"description": "Not stored; `error.message` says why, in the shape of OpenAI's errors."}
    feedback = {
        "summary": "Report what became of an answer",
        "description": inspect.cleandoc(FeedbackEvent.__doc__ or ""),
        "requestBody": _body({"anyOf": [event, {"type": "array", "items": event, "minItems": 1, "maxItems": 1000}]}),
        "responses": {"200": answer, "202": answer, "400": error, "401": error, "404": error, "413": error},
    }
    anything = {"type": "object", "additionalProperties": True}
    paths = {
        "/v1/feedback": {"post": feedback},
        "/v1/logs": {"post": _foreign("The same as OpenTelemetry logs (OTLP/HTTP, JSON or protobuf)", anything)},
        "/v1/chat/completions": {"post": _foreign("OpenAI's chat completions, streaming or not", anything)},
        "/v1/models": {"get": {"summary": "The names of the model", "responses": {"200": {"description": "A list."}}}},
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Ostinato's gateway", "version": ostinato.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
    return msgspec.json.encode(document)


@cache
def page() -> str:
    """The page for people: every kind of report with its fields. It loads nothing."""
    environment = Environment(loader=PackageLoader("ostinato.gateway", "."), autoescape=select_autoescape())
    environment.filters["coded"] = _coded
    event = _kind("FeedbackEvent", FeedbackEvent)
    kinds = [_kind(str(payload.__struct_config__.tag), payload) for payload in typing.get_args(Payload)]
    kinds.append(_kind("EditHunk", EditHunk))
    return environment.get_template("reference.html").render(
        event=event, kinds=kinds, example=_example(), version=ostinato.__version__
    )


async def openapi_page(_: Request) -> Response:
    """See `openapi`."""
    return Response(openapi(), media_type="application/json")


async def docs_page(_: Request) -> Response:
    """See `page`."""
    return Response(page(), media_type="text/html", headers={"Content-Security-Policy": _POLICY})


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _foreign(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    """An endpoint whose schema is not ours to write down."""
    return {"summary": summary, "requestBody": _body(schema), "responses": {"200": {"description": "As there."}}}


def _kind(name: str, payload: type[Struct]) -> Kind:
    words = inspect.cleandoc(payload.__doc__ or "").split("\n\n")
    return Kind(
        name, [" ".join(part.split()) for part in words], [_field(item) for item in msgspec.structs.fields(payload)]
    )


def _field(item: Any) -> Field:
    if item.default is not msgspec.NODEFAULT:
        default = msgspec.json.encode(item.default).decode()
    elif item.default_factory is not msgspec.NODEFAULT:
        default = msgspec.json.encode(item.default_factory()).decode()
    else:
        default = ""
    return Field(item.encode_name, _words(item.type), default)


def _words(kind: Any) -> str:
    """A type as a reader of JSON would call it."""
    names = {str: "string", float: "number", int: "integer", bool: "true or false", type(None): "null"}
    if kind in names:
        return names[kind]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(msgspec.json.encode(value).decode() for value in inner)
    if origin in (list, tuple):
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return f"object of {_words(inner[1])}"
    if inner:
        return "one of the kinds below" if len(inner) > 3 else " or ".join(map(_words, inner))
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _coded(words: str) -> Markup:
    """A docstring's words with what stands between backticks set as code."""
    parts = (escape(part) for part in words.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def _example() -> str:
    event = {
        "event_id": "7f3a:2 min",
        "response_id": "the id of the answer",
        "at": 1764547200.0,
        "payload": {
            "kind": "edit.survival",
            "delay_s": 120,
            "survival_rate_four_gram": 0.93,
            "survival_rate_no_revert": 1.0,
        },
    }
    return msgspec.json.format(msgspec.json.encode(event), indent=2).decode()
