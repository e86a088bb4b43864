"""Which slot of the engine answers: by the name of the model, and by the person's arm in the running experiment."""

from msgspec import Struct

from ostinato.records import Arm, Experiment, MissingError, Purpose, SessionRow, arm_of
from ostinato.store import Ledger

MODEL = "ostinato"
SLOTS = ("release", "candidate", "evaluation")
MODELS: tuple[str, ...] = (MODEL, *(f"{MODEL}@{slot}" for slot in SLOTS))


class Target(Struct, frozen=True):
    """What a model's name asks for: a slot by name (a run of ours), or None for the person's arm."""

    purpose: Purpose
    slot: str | None


def target_of(model: str) -> Target:
    """Read a model's name. Raises `MissingError` for an unknown one."""
    if model == MODEL:
        return Target("live", None)
    if model in MODELS:
        return Target("episode", model.partition("@")[2])
    raise MissingError(
        f"The model {model!r} does not exist; there are {', '.join(MODELS)}.",
        hint="List: GET /v1/models",
        param="model",
    )


class Arms:
    """The running experiment, as last read from the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.experiment: Experiment | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the running experiment again."""
        self.experiment = self._ledger.running_experiment()

    def assign(self, person: str) -> tuple[str | None, Arm | None]:
        """The experiment and arm of a session that this person opens now."""
        if self.experiment is None:
            return None, None
        return self.experiment.experiment_id, arm_of(person, self.experiment.experiment_id)

    def slot_of(self, session: SessionRow) -> str:
        """The slot that answers a person's session. A session keeps the arm with which it opened for as long as that
        experiment runs; all others get the release, so that no session mixes experiments."""
        running = self.experiment is not None and session.experiment_id == self.experiment.experiment_id
        return "candidate" if running and session.arm == "candidate" else "release"
