"""Text to token ids and back, with special tokens under control."""

import hashlib
from pathlib import Path

import tokenizers

from ostinato.records import BadInputError, MissingError


class Tokenizer:
    """A Hugging Face `tokenizer.json`, read from its bytes.

    `content_hash` is the SHA-256 of those bytes in hexadecimal: two tokenizers with one hash give the same ids."""

    def __init__(self, data: bytes) -> None:
        self.content_hash = hashlib.sha256(data).hexdigest()
        self._plain = _load(data)
        self._plain.encode_special_tokens = True
        self._marked = _load(data)
        self.vocab_size: int = self._plain.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read `folder/tokenizer.json`."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise MissingError(f"There is no tokenizer at {path}.", hint="Point to a Hugging Face model folder.")
        return cls(path.read_bytes())

    def encode(self, text: str) -> list[int]:
        """The ids of plain text. What looks like a special token in it becomes ordinary tokens."""
        return self._ids(self._plain, text)

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a rendered chat template, in which special tokens stand as text and are read as such."""
        return self._ids(self._marked, text)

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`; special tokens appear as their text, broken UTF-8 as U+FFFD."""
        if not ids:
            return ""
        text: str = self._plain.decode(ids, skip_special_tokens=False)
        return text

    def id_of(self, token: str) -> int:
        """The id of one token by its text."""
        found = self._plain.token_to_id(token)
        if found is None:
            raise BadInputError(
                f"The tokenizer {self.content_hash[:16]} has no token {token!r}.",
                hint="Use the tokenizer.json that belongs to this model.",
            )
        return int(found)

    def _ids(self, tokenizer: tokenizers.Tokenizer, text: str) -> list[int]:
        if not text:
            return []
        try:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError:
            # The library takes only text that can be UTF-8; a lone surrogate cannot.
            raise BadInputError("A text holds a lone surrogate, which is no character.", param="messages") from None
        return ids


def _load(data: bytes) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:
        raise BadInputError(
            f"tokenizer.json cannot be read: {error}", hint="Fetch the model folder again; the file may be torn."
        ) from error
