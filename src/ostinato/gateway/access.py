"""Who calls: API keys, persons, and our own headers."""

import re
import time
from collections.abc import Iterable

from msgspec import Struct

from ostinato.gateway.errors import KeyRefusedError, ScopeError
from ostinato.records import BadInputError
from ostinato.store import ApiKey, Ledger, Scope

HEADERS = ("x-ostinato-session", "x-ostinato-person", "x-ostinato-sandbox", "x-ostinato-train")
LOCAL = "local"
"""The person where there is no key and none is named: a data folder without keys serves one person on loopback."""

_SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_KEY_TTL_S = 0.5


class Caller(Struct, frozen=True):
    """What a request says about its sender; None where it says nothing. private: nothing of it may be kept or trained
    on (the header X-Ostinato-Train: no)."""

    key: str
    session_id: str | None
    person: str | None
    sandbox_id: str | None
    private: bool = False


class Access:
    """Checks keys against the ledger; a key's revocation counts within half a second."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._required: tuple[float, bool] = (0.0, True)
        self._known: dict[str, tuple[float, ApiKey | None]] = {}

    def caller(self, headers: Iterable[tuple[bytes, bytes]], scope: Scope) -> Caller:
        """Read the headers. Raises for a missing or insufficient key, and for an unknown or odd header of ours."""
        secret: str | None = None
        ours: dict[str, str] = {}
        for raw, value in headers:
            name = raw.decode("latin-1").lower()
            if name == "authorization":
                secret = value.decode("latin-1").removeprefix("Bearer ").strip()
            elif name.startswith("x-ostinato"):
                ours[name] = _checked(name, value)
        session_id = ours.get("x-ostinato-session")
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise BadInputError(
                f"The session id {session_id[:200]!r} is not allowed.",
                hint="Use up to 128 of A-Z a-z 0-9 . _ : -",
                param="X-Ostinato-Session",
            )
        person, sandbox_id = ours.get("x-ostinato-person"), ours.get("x-ostinato-sandbox")
        train = ours.get("x-ostinato-train", "yes")
        if train not in ("yes", "no"):
            raise BadInputError(
                f"X-Ostinato-Train is {train[:64]!r}.", hint='Send "no" to opt out, "yes" or nothing else.',
                param="X-Ostinato-Train",
            )  # fmt: skip
        return Caller(self._key(secret, scope), session_id, person, sandbox_id, train == "no")

    def _key(self, secret: str | None, scope: Scope) -> str:
        if not self._keys_required():
            return LOCAL
        if not secret:
            raise KeyRefusedError("An API key is needed.", hint="Send the header Authorization: Bearer KEY")
        key = self._lookup(secret)
        if key is None:
            raise KeyRefusedError("The API key is not known.", hint="Make one: ostinato keys create NAME")
        if scope not in key.scopes:
            raise ScopeError(f"The key {key.name!r} lacks the scope {scope!r}.", hint="Make one that has it.")
        return key.name

    def _keys_required(self) -> bool:
        now = time.monotonic()
        if now >= self._required[0]:
            self._required = (now + _KEY_TTL_S, self._ledger.has_keys())
        return self._required[1]

    def _lookup(self, secret: str) -> ApiKey | None:
        now = time.monotonic()
        until, key = self._known.get(secret, (0.0, None))
        if now < until:
            return key
        if len(self._known) > 1000:
            self._known.clear()
        key = self._ledger.check_key(secret)
        self._known[secret] = (now + _KEY_TTL_S, key)
        return key


def checked_person(person: str, param: str) -> str:
    """A person's name as it may be stored."""
    if not person or len(person) > 256 or not person.isprintable():
        raise BadInputError(f"{param} must be 1 to 256 printable characters, not {person[:64]!r}.", param=param)
    return person


def _checked(name: str, value: bytes) -> str:
    if name not in HEADERS:
        raise BadInputError(f"The header {name!r} is not known.", hint=f"Known are {', '.join(HEADERS)}.", param=name)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise BadInputError(f"The header {name!r} is not UTF-8.", param=name) from None
    return checked_person(text, name)
