"""Secrets in what passes through: found by their form, and kept out of everything that is stored.

The request is served as it came, and only what is written down is changed. Forms with a fixed beginning are those that
their issuers publish (GitHub, GitLab, AWS, Google, Slack, Stripe, OpenAI, Anthropic, Hugging Face, npm, PyPI,
SendGrid); the others are private keys, JSON web tokens, passwords in URLs, authorization headers, and values that are
given to a name such as `password` and look random.
"""

import hashlib
import math
import re
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import msgspec

from ostinato.records import FeedbackEvent

MARK = "[redacted]"
"""What stands in a secret's place."""

_KEY_BLOCK = r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)"
_URL = r"""://[^\s/:@"'\\]{1,64}:(?P<secret>[^\s/@"'\\\[<{$][^\s/@"'\\]{2,})@"""
_HEADER = r"(?i:\b(?:bearer|basic)\s+)(?P<secret>[A-Za-z0-9+/._~-]{16,}=*)"
_NAMES = r"passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|auth|private)[_-]?key"
_NAMED = (
    rf"""(?i:{_NAMES})[A-Za-z0-9_-]{{0,16}}\\{{0,3}}["']?\s{{0,4}}(?:=>|:=|[:=])\s{{0,4}}\\{{0,3}}["']?"""
    r"(?P<random>[A-Za-z0-9+/._~!@#$%^&*-]{8,}=*)"
)
_FORMS = [
    # Texts of which one must occur (in lower case), and the form. The group `secret`, or the whole, is what goes; the
    # group `random` only where it looks random.
    (hints, re.compile(form, re.DOTALL))
    for hints, form in (
        (("-----begin",), _KEY_BLOCK),
        (("akia", "asia", "aroa", "aida"), r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b"),
        (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{36,}"),
        (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
        (("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}"),
        (("xox",), r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
        (("hooks.slack.com",), r"\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
        (("aiza",), r"\bAIza[0-9A-Za-z_-]{35}"),
        (("ya29.",), r"\bya29\.[0-9A-Za-z_-]{20,}"),
        (("k_live_", "k_test_"), r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,}"),
        (("sk-",), r"\bsk-[A-Za-z0-9_-]{20,}"),
        (("hf_",), r"\bhf_[A-Za-z0-9]{30,}"),
        (("npm_",), r"\bnpm_[A-Za-z0-9]{36}"),
        (("pypi-",), r"\bpypi-[A-Za-z0-9_-]{40,}"),
        (("sg.",), r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        (("eyj",), r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
        (("://",), _URL),
        (("bearer", "basic"), _HEADER),
        (("passw", "passphrase", "secret", "token", "credential", "key"), _NAMED),
    )
]
_LEAST_BITS = 2.8
"""Entropy of a value's characters, in bits each, from which it counts as random."""
_MOST_KNOWN = 50_000


class Cleaned(NamedTuple):
    """What may be stored, and how many secrets were taken out of it."""

    content: Any
    found: int


def clean_text(text: str) -> tuple[str, int]:
    """The text with every secret replaced by `MARK`, and how many there were."""
    found = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal found
        group = match.lastgroup or 0
        if group == "random" and not _looks_random(match["random"]):
            return match[0]
        found += 1
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return match[0][:start] + MARK + match[0][end:]

    lowered = text.lower()
    for hints, form in _FORMS:
        if any(hint in lowered for hint in hints):
            text = form.sub(replaced, text)
    return text, found


def clean(content: Any) -> Cleaned:
    """The same for all texts (keys too) in lists and dictionaries."""
    if isinstance(content, str):
        return Cleaned(*clean_text(content))
    if isinstance(content, list):
        parts = [clean(part) for part in content]
        return Cleaned([part.content for part in parts], sum(part.found for part in parts))
    if isinstance(content, dict):
        pairs = [(clean_text(str(key)), clean(value)) for key, value in content.items()]
        found = sum(key[1] + value.found for key, value in pairs)
        return Cleaned({key[0]: value.content for key, value in pairs}, found)
    return Cleaned(content, 0)


class MessageCleaner:
    """Cleans whole requests. A conversation grows by a message or two at a time, so messages that were found to hold
    nothing are known by their hash and not read again."""

    def __init__(self) -> None:
        self._harmless: OrderedDict[bytes, None] = OrderedDict()

    def clean(self, raw: bytes) -> tuple[bytes, int]:
        """A request's JSON array of messages as it may be stored, byte for byte the same where it holds no secret, and
        how many it held."""
        cleaned = [self._message(message) for message in msgspec.json.decode(raw, type=list[msgspec.Raw])]
        found = sum(message.found for message in cleaned)
        return (msgspec.json.encode([message.content for message in cleaned]), found) if found else (raw, 0)

    def _message(self, raw: msgspec.Raw) -> Cleaned:
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        if digest in self._harmless:
            self._harmless.move_to_end(digest)
            return Cleaned(raw, 0)
        cleaned = clean(_joined(msgspec.json.decode(raw)))
        if not cleaned.found:
            self._harmless[digest] = None
            if len(self._harmless) > _MOST_KNOWN:
                self._harmless.popitem(last=False)
        return cleaned if cleaned.found else Cleaned(raw, 0)


def clean_event(event: FeedbackEvent) -> tuple[FeedbackEvent, int]:
    """A report as it may be stored."""
    cleaned = clean(msgspec.to_builtins(event.payload))
    if not cleaned.found:
        return event, 0
    payload = msgspec.convert(cleaned.content, type(event.payload))
    return msgspec.structs.replace(event, payload=payload), cleaned.found


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its parts as one text, as the model reads it: a secret may be cut in two."""
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    return message | {"content": "".join(part.get("text") or "" for part in parts)}


def _looks_random(value: str) -> bool:
    """Whether a value is a secret rather than a name, a call or a word: digits and letters, evenly spread."""
    if not (any(map(str.isdigit, value)) and any(map(str.isalpha, value))):
        return False
    counts = Counter(value)
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
    return bits >= _LEAST_BITS
