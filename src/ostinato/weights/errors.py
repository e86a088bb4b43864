"""What goes wrong with weights on disk."""

from pathlib import Path

from ostinato.records import OstinatoError


class DamagedWeightsError(OstinatoError):
    """A file of the weights folder is torn, altered, or does not fit its neighbours. Nothing is loaded from it."""

    status = 500
    kind = "damaged_weights"


def damaged(path: Path, version: str, what: str) -> DamagedWeightsError:
    """The error for the file `path`, which `version` needs."""
    return DamagedWeightsError(
        f"The file {path} that version {version} needs is damaged: {what}.",
        hint="Restore it from a backup, or publish that version again; `ostinato status` lists the versions.",
    )
