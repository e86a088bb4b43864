"""From the files of a model folder to its chat format."""

import json
from typing import Any

from ostinato.records import BadInputError
from ostinato.render.format import ChatFormat
from ostinato.render.jinja import JinjaFormat
from ostinato.render.tiny import TinyFormat
from ostinato.render.tokenizer import Tokenizer


def format_for(frame_files: dict[str, bytes]) -> ChatFormat:
    """The chat format of a model, from its small files by name (`tokenizer.json`, `tokenizer_config.json`, and where
    they exist `generation_config.json` and `chat_template.jinja`).

    `"ostinato_format": "tiny"` in `tokenizer_config.json` means the seed model's; otherwise the chat template rules.
    """
    if "tokenizer.json" not in frame_files:
        raise BadInputError("The model's folder has no tokenizer.json.", hint="Save a fast tokenizer into the folder.")
    tokenizer = Tokenizer(frame_files["tokenizer.json"])
    config = _object(frame_files, "tokenizer_config.json")
    named = config.get("ostinato_format")
    if named == "tiny":
        return TinyFormat(tokenizer)
    if named is not None:
        raise BadInputError(
            f"tokenizer_config.json names the chat format {named!r}, which is not known.",
            hint='Write "ostinato_format": "tiny", or leave it out and give a chat_template.',
        )
    names = {key: _token_text(value) for key, value in config.items() if key.endswith("_token") and value is not None}
    return JinjaFormat(tokenizer, _template(frame_files, config), names, _stop_ids(frame_files, tokenizer, names))


def _template(files: dict[str, bytes], config: dict[str, Any]) -> str:
    if "chat_template.jinja" in files:
        return files["chat_template.jinja"].decode()
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    if not isinstance(template, str):
        raise BadInputError(
            "The model's folder has no chat template.",
            hint="Add chat_template to tokenizer_config.json, or a chat_template.jinja file.",
        )
    return template


def _stop_ids(files: dict[str, bytes], tokenizer: Tokenizer, names: dict[str, str]) -> list[int]:
    given = _object(files, "generation_config.json").get("eos_token_id", [])
    stops = {int(token) for token in (given if isinstance(given, list) else [given])}
    if "eos_token" in names:
        stops.add(tokenizer.id_of(names["eos_token"]))
    if not stops:
        raise BadInputError(
            "The model's folder names no end-of-turn token.",
            hint="Add eos_token to tokenizer_config.json, or eos_token_id to generation_config.json.",
        )
    return sorted(stops)


def _object(files: dict[str, bytes], name: str) -> dict[str, Any]:
    try:
        value = json.loads(files.get(name, b"{}"))
    except ValueError as error:
        raise BadInputError(f"{name} is no JSON: {error}", hint="Fetch the model folder again.") from error
    if not isinstance(value, dict):
        raise BadInputError(f"{name} must hold a JSON object.", hint="Fetch the model folder again.")
    return value


def _token_text(value: object) -> str:
    """A token in tokenizer_config.json is its text, or an object that holds it as `content`."""
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)
