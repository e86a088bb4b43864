"""What the commands share."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

Data = Annotated[Path | None, Parameter(help="The data folder. Default: $OSTINATO_DATA, else ./.ostinato.")]


def say(result: Any) -> None:
    """One JSON object on standard output, for the process that started us."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    sys.stdout.flush()
