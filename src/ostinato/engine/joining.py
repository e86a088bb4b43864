"""From chunks to a whole generation."""

from collections.abc import Iterable

from ostinato.records import GenerateChunk, Generation, UnavailableError, VersionSpan


def join_chunks(chunks: Iterable[GenerateChunk]) -> Generation:
    """All chunks of one generation, in order. Raises `UnavailableError` where the last one says no reason to end."""
    ids: list[int] = []
    logprobs: list[float] = []
    spans: list[VersionSpan] = []
    last: GenerateChunk | None = None
    for last in chunks:
        if last.ids and (not spans or spans[-1].version != last.version):
            spans.append(VersionSpan(len(ids), last.version))
        ids += last.ids
        logprobs += last.logprobs
    if last is None or last.finish_reason is None:
        raise UnavailableError("The engine's stream broke off midway.", hint="Send the request again.")
    return Generation(ids, logprobs, tuple(spans), last.finish_reason, last.experts)
