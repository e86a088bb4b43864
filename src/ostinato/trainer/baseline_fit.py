"""What a session's reward is measured against, when each prompt is tried once and no group exists.

The baseline of a session may use only what was known before its first sampled token, and never its own reward: then it
lowers the variance of the policy gradient and leaves its mean unchanged (Williams 1992; Greensmith et al. 2004). Two
are offered:
- `batch_mean`: the mean reward of all other sessions of the batch.
- `ridge`: a ridge regression on the words of the request (hashed), its length, how many sessions of the same person
  came before and their shrunk mean reward. Cross-fitted: the coefficients that judge a person's sessions were fitted on
  other persons alone. The strength is chosen by generalised cross-validation, up to infinite, where it is the mean.
Advantages are divided by one number for the whole batch, their root mean square. Composer 2 (arXiv:2603.24477) never
divides by the deviation of a group, since that weighs prompts by how even their results are; one constant for a whole
batch weighs nothing and only makes the learning rate independent of the rewards' unit.

Legend: S sessions, F features.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ostinato.records import BadInputError

BaselineKind = Literal["batch_mean", "ridge"]
FOLDS = 5
LEAST_SESSIONS = 8
WORD_BINS = 64
PERSON_WEIGHT = 2.0
"""A person's mean is shrunk towards everybody's as if by this many sessions."""
STRENGTHS = (*np.logspace(-1, 4, 11), 1e12)

Floats = NDArray[np.float64]


class Known(Protocol):
    """What is known of a session before its first sampled token; `opened_at` orders a person's sessions."""

    @property
    def session_id(self) -> str: ...
    @property
    def person(self) -> str: ...
    @property
    def opened_at(self) -> float: ...
    @property
    def request(self) -> str: ...


class Past(NamedTuple):
    """Number and sum of the rewards of a person's sessions before this batch."""

    sessions: int
    total: float


History = Mapping[str, Past]


class Advantages(NamedTuple):
    """`values` [S], already divided by `scale`; `variance_left` is the mean square of reward minus baseline over that
    of reward minus the others' mean (below 1: the baseline helps)."""

    values: Floats
    scale: float
    variance_left: float


def advantages(
    sessions: Sequence[Known], rewards: Floats, kind: BaselineKind = "ridge", history: History | None = None
) -> Advantages:
    """The advantage of each session; `history` holds persons' earlier rewards.

    Raises `BadInputError` for fewer than 8 sessions, or when all rewards are the same."""
    if len(sessions) < LEAST_SESSIONS:
        raise BadInputError(
            f"{len(sessions)} sessions are too few to measure rewards against each other; {LEAST_SESSIONS} are needed.",
            hint="Collect more sessions with feedback; `ostinato status` counts them.",
        )
    mean = batch_mean(rewards)
    left = rewards - (ridge(sessions, rewards, history) if kind == "ridge" else mean)
    scale = float(np.sqrt(np.mean(left**2)))
    if scale == 0.0:
        raise BadInputError("All rewards are the same, so nothing can be learned.", hint="Collect more sessions.")
    return Advantages(left / scale, scale, float(np.mean(left**2) / np.mean((rewards - mean) ** 2)))


def batch_mean(rewards: Floats) -> Floats:
    """For each session the mean reward of the others [S]."""
    others: Floats = (rewards.sum() - rewards) / (rewards.size - 1)
    return others


def person_mean(sessions: Sequence[Known], rewards: Floats, history: History | None = None) -> Floats:
    """For each session the shrunk mean of the same person's earlier ones [S]; the prior is the others' mean."""
    count, total = _earlier(sessions, rewards, history or {})
    return (total + PERSON_WEIGHT * batch_mean(rewards)) / (count + PERSON_WEIGHT)


def ridge(sessions: Sequence[Known], rewards: Floats, history: History | None = None) -> Floats:
    """The cross-fitted prediction for each session [S].

    With fewer than ten persons they cannot be kept apart; then single sessions are, and the person is no feature."""
    by_person = len({session.person for session in sessions}) >= 2 * FOLDS
    folds = _folds([session.person if by_person else session.session_id for session in sessions])
    words_SF = np.stack([_words(session.request) for session in sessions])
    count, total = _earlier(sessions, rewards, history or {})
    out = np.empty_like(rewards)
    for fold in range(FOLDS):
        inside = folds == fold
        features = words_SF
        if by_person:
            prior, unit = rewards[~inside].mean(), rewards[~inside].std() or 1.0
            shrunk = (total - count * prior) / (count + PERSON_WEIGHT)
            features = np.column_stack([words_SF, 3 * shrunk / unit, np.log1p(count)])
        out[inside] = _fit(features[~inside], rewards[~inside], features[inside])
    return out


def compare(sessions: Sequence[Known], rewards: Floats) -> dict[str, float]:
    """The mean square that each baseline leaves of the rewards, over what `batch_mean` leaves."""
    unit = np.mean((rewards - batch_mean(rewards)) ** 2)
    guesses = {
        "none": np.zeros_like(rewards),
        "batch_mean": batch_mean(rewards),
        "person_mean": person_mean(sessions, rewards),
        "ridge": ridge(sessions, rewards),
    }
    return {name: float(np.mean((rewards - guess) ** 2) / unit) for name, guess in guesses.items()}


def _words(request: str) -> Floats:
    """Hashed words (present or not), and the logarithm of their number [F]."""
    words = re.findall(r"\w+", request.lower())
    row = np.zeros(WORD_BINS + 1)
    for word in words:
        row[zlib.crc32(word.encode()) % WORD_BINS] = 1.0
    row[-1] = np.log1p(len(words))
    return row


def _earlier(sessions: Sequence[Known], rewards: Floats, history: History) -> tuple[Floats, Floats]:
    """Number and sum of rewards of the same person's sessions that opened before each one, [S] both."""
    count, total = np.zeros_like(rewards), np.zeros_like(rewards)
    seen = dict(history)
    for place in sorted(range(len(sessions)), key=lambda s: (sessions[s].opened_at, sessions[s].session_id)):
        person = sessions[place].person
        before = seen.get(person, Past(0, 0.0))
        count[place], total[place] = before
        seen[person] = Past(before.sessions + 1, before.total + float(rewards[place]))
    return count, total


def _folds(keys: Sequence[str]) -> NDArray[np.int64]:
    """A fold for each key: equal keys share one, and folds hold equally many keys (within one)."""
    order = sorted(set(keys), key=lambda key: (zlib.crc32(key.encode()), key))
    fold_of = {key: number % FOLDS for number, key in enumerate(order)}
    return np.array([fold_of[key] for key in keys])


def _fit(features: Floats, rewards: Floats, asked: Floats) -> Floats:
    """Ridge with an unpenalised intercept, its strength by generalised cross-validation (Golub et al. 1979)."""
    centre, mean, n = features.mean(axis=0), rewards.mean(), rewards.size
    X, y = features - centre, rewards - mean
    sizes, axes = np.linalg.eigh(X.T @ X)
    sizes, along = sizes.clip(min=0.0), axes.T @ (X.T @ y)
    best, weights = np.inf, np.zeros(features.shape[1])
    for strength in STRENGTHS:
        part = along / (sizes + strength)
        left = y @ y - 2 * along @ part + sizes @ part**2
        freedom = 1 - (np.sum(sizes / (sizes + strength)) + 1) / n
        score = left / n / freedom**2 if freedom > 0 else np.inf
        if score < best:
            best, weights = score, axes @ part
    predicted: Floats = mean + (asked - centre) @ weights
    return predicted
