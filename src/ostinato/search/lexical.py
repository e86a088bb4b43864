"""Lexical search: lines that contain a text. Standard library alone, since the guest inside a sandbox runs it too."""

from collections.abc import Iterable, Iterator

LIMIT = 8
"""How many matches a reply holds."""

NO_MATCH = "no match"


def match_lines(path: str, text: str, pattern: str) -> Iterator[str]:
    """`path:LINE: text` for each line of `text` that contains `pattern`, case-sensitive, text stripped."""
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern in line:
            yield f"{path}:{number}: {line.strip()}"


def search_files(files: Iterable[tuple[str, str]], pattern: str, limit: int = LIMIT) -> str:
    """The reply of the `search` tool over (path, text) pairs, in order of path; `no match` where there is none."""
    found: list[str] = []
    for path, text in sorted(files):
        for line in match_lines(path, text, pattern):
            found.append(line)
            if len(found) == limit:
                return "\n".join(found)
    return "\n".join(found) or NO_MATCH
