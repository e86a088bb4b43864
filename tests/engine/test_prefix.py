"""Which rows are used again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.engine.prefix import PrefixCache


def _ids(count: int, salt: int = 0) -> list[int]:
    return [(i * 7 + salt) % 90 for i in range(count)]


def test_a_continuation_takes_the_row_over() -> None:
    """A sequence that extends a finished one gets its row, without a copy, up to the very last token."""
    cache = PrefixCache(2)
    first = cache.acquire("v", _ids(20))
    assert first is not None and first.reused == 0
    cache.release(first.row, "v", _ids(37))
    again = cache.acquire("v", _ids(50))
    assert again == (first.row, 37, None)
    assert (cache.hits, cache.misses, cache.tokens_reused) == (1, 1, 37)


def test_the_last_token_is_always_computed() -> None:
    """The very same prompt again re-uses all but one token, from a copy."""
    cache = PrefixCache(2)
    first = cache.acquire("v", _ids(32))
    assert first is not None
    cache.release(first.row, "v", _ids(32))
    again = cache.acquire("v", _ids(32))
    assert again is not None and again.reused == 31 and again.copy_from == first.row and again.row != first.row


def test_a_row_in_use_is_copied() -> None:
    """Two sequences may continue one at a time in place; the second gets a copy of the shared part."""
    cache = PrefixCache(3)
    first = cache.acquire("v", _ids(20))
    assert first is not None
    cache.release(first.row, "v", _ids(40))
    one = cache.acquire("v", _ids(60))
    two = cache.acquire("v", _ids(40) + _ids(30, 5))
    assert one is not None and one.row == first.row
    assert two is not None and two.copy_from == first.row and two.reused == 40


def test_nothing_is_shared_across_versions() -> None:
    """The same tokens under another version are a miss."""
    cache = PrefixCache(2)
    first = cache.acquire("v1", _ids(20))
    assert first is not None
    cache.release(first.row, "v1", _ids(40))
    other = cache.acquire("v2", _ids(60))
    assert other is not None and other.reused == 0 and other.row != first.row
    cache.keep_only({"v2"})
    assert cache.kept == 0 and cache.available == 1


def test_rows_are_given_up_least_recently_used_first() -> None:
    """When all rows are kept, the one used longest ago goes; when all are busy, there is none."""
    cache = PrefixCache(2)
    for salt in (1, 2):
        lease = cache.acquire("v", _ids(20, salt))
        assert lease is not None
        cache.release(lease.row, "v", _ids(20, salt))
    touched = cache.acquire("v", _ids(30, 1))
    assert touched is not None and touched.reused == 20
    cache.release(touched.row, "v", _ids(30, 1))
    fresh = cache.acquire("v", _ids(20, 3))
    assert fresh is not None and fresh.row != touched.row and cache.evictions == 1
    assert cache.acquire("v", _ids(40, 1)) is not None
    assert cache.acquire("v", _ids(5)) is None


def test_the_only_idle_row_may_be_its_own_source() -> None:
    """With one row, a sequence that shares a beginning keeps the row and needs no copy."""
    cache = PrefixCache(1)
    lease = cache.acquire("v", _ids(20))
    assert lease is not None
    cache.release(lease.row, "v", _ids(40))
    assert cache.acquire("v", [*_ids(24), 89, 88, 87]) == (0, 24, None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.booleans()), max_size=40), st.integers(1, 4))
def test_what_is_reused_was_computed(moves: list[tuple[int, int, bool]], rows: int) -> None:
    """Whatever the order of sequences, a lease's re-used positions hold exactly its own tokens under its version."""
    cache = PrefixCache(rows)
    held: dict[int, tuple[str, list[int]]] = {}
    busy: list[tuple[int, str, list[int]]] = []
    for salt, length, version in moves:
        name, ids = ("v1" if version else "v2"), _ids(length, salt)
        lease = cache.acquire(name, ids)
        if lease is None:
            assert len(busy) == rows
            row, name, ids = busy.pop(0)
            held[row] = (name, ids)
            cache.release(row, name, ids)
            continue
        assert lease.row not in [row for row, _, _ in busy]
        assert lease.reused < len(ids)
        if lease.reused:
            source = lease.row if lease.copy_from is None else lease.copy_from
            assert held[source][0] == name and held[source][1][: lease.reused] == ids[: lease.reused]
        held[lease.row] = (name, ids)
        busy.append((lease.row, name, ids))
        if len(busy) == rows and salt:
            row, name, ids = busy.pop()
            cache.release(row, name, ids)
