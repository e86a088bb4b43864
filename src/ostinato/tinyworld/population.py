"""Who uses the agent: a seeded population with taste and patience, and the order in which its members come.

Everything follows from (split, seed): the same persons, with the same repositories and requests, in every process.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count, islice
from random import Random

from msgspec import Struct

from ostinato.records import BadInputError
from ostinato.tinyworld.names import SPLITS, Split

SMALLEST = 20
"""A population smaller than this says nothing about persons."""


class Person(Struct, frozen=True):
    """One person. `sessions`: how many requests they bring. `notice`: probability of seeing a needless comment.
    `diligence`: probability of running their own tests on an edit. `token_limit`, `call_limit`: generated tokens and
    tool calls beyond which they lose patience. `talk`: probability of a word after work that is good."""

    person_id: str
    sessions: int
    notice: float
    diligence: float
    token_limit: int
    call_limit: int
    talk: float


class Visit(Struct, frozen=True):
    """One session to come: whose, which of theirs (from 0), and the number of the task they bring."""

    person: Person
    session: int
    task_seed: int

    def rng(self, use: str) -> Random:
        """The chances of this visit, the same in every process; each `use` has its own."""
        return Random(f"{self.person.person_id}/{self.session}/{use}")


class Population:
    """`size` persons at a time; when all their sessions are had, the next `size` persons come."""

    def __init__(self, split: Split, seed: int, size: int = 200) -> None:
        """Raises `BadInputError` for a split that does not exist or a size below 20."""
        if split not in SPLITS:
            raise BadInputError(f"no split named {split!r}", hint=f"Use one of {', '.join(SPLITS)}.", param="split")
        if size < SMALLEST:
            raise BadInputError(f"a population of {size} is too small", hint=f"Use {SMALLEST} or more.", param="size")
        self.split = split
        self.seed = seed
        self.size = size

    def person(self, index: int) -> Person:
        """Person number `index`, from 0 without end. The id says nothing about who it is."""
        name = blake2b(f"{self.split}/{self.seed}/{index}".encode(), digest_size=6).hexdigest()
        rng = Random(f"person/{self.split}/{self.seed}/{index}")
        return Person(
            person_id=f"p-{name}",
            sessions=rng.randint(3, 6),
            notice=rng.uniform(0.8, 1.0),
            diligence=rng.betavariate(19, 1),
            token_limit=rng.randint(90, 200),
            call_limit=rng.randint(5, 9),
            talk=rng.uniform(0.15, 0.6),
        )

    def visits(self) -> Iterator[Visit]:
        """All sessions in order of arrival, without end: those of one generation of persons are shuffled, each person's
        own stay in order."""
        for generation in count():
            start = generation * self.size
            persons = [self.person(index) for index in range(start, start + self.size)]
            order = [place for place, person in enumerate(persons) for _ in range(person.sessions)]
            Random(f"order/{self.split}/{self.seed}/{generation}").shuffle(order)
            had = [0] * self.size
            for place in order:
                yield self._visit(persons[place], had[place])
                had[place] += 1

    def slice(self, first: int, number: int) -> list[Visit]:
        """Visits `first` to `first + number` in order of arrival."""
        return list(islice(self.visits(), first, first + number))

    def _visit(self, person: Person, session: int) -> Visit:
        text = f"task/{self.split}/{self.seed}/{person.person_id}/{session}"
        digest = blake2b(text.encode(), digest_size=6).digest()
        return Visit(person=person, session=session, task_seed=int.from_bytes(digest, "big"))
