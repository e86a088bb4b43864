"""What every benchmark prints last: one JSON object with its figures."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured figure. `target` is what it must reach, in words; `holds` is None where there is no target."""

    what: str
    value: float | str
    target: str
    holds: bool | None
    n: int


def finish(benchmark: str, figures: list[Figure], notes: str, *, as_json: bool) -> None:
    """Print the figures: as a table for people, or as one JSON object."""
    if as_json:
        body = {"benchmark": benchmark, "figures": [asdict(figure) for figure in figures], "notes": notes}
        print(json.dumps(body))
        return
    for figure in figures:
        mark = {True: "holds", False: "FAILS", None: ""}[figure.holds]
        value = f"{figure.value:.4g}" if isinstance(figure.value, float) else figure.value
        print(f"{mark:6} {figure.what}: {value}  (target {figure.target or 'none'}, n={figure.n})")
    print(notes)
