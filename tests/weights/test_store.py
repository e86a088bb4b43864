"""Publishing and fetching: bit-equal, idempotent, and never wrong."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zstandard

from ostinato.records import BadInputError, MissingError, OstinatoError, Version
from ostinato.weights import Arrays, DamagedWeightsError, WeightStore
from ostinato.weights.content import content_digest, version_name
from ostinato.weights.files import LINK_MAGIC

FRAME = {"config.json": b'{"model_type": "qwen3_moe"}', "tokenizer.json": b"{}"}


def step(arrays: Arrays, rng: np.random.Generator, share: float = 0.05) -> Arrays:
    """A copy in which a share of the elements has its lowest bit flipped."""
    new: Arrays = {}
    for name, array in arrays.items():
        kind = np.uint16 if array.dtype == np.uint16 else np.uint32
        new[name] = (array.view(kind) ^ (rng.random(array.shape) < share).astype(kind)).view(array.dtype)
    return new


def equal(left: Arrays, right: Arrays) -> bool:
    """Bit equality."""
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def chain(store: WeightStore, arrays: Arrays, rng: np.random.Generator, links: int) -> list[tuple[Version, Arrays]]:
    """Publish a chain of versions."""
    made = [(store.publish(arrays, parent=None, frame=FRAME), arrays)]
    while len(made) < links:
        arrays = step(arrays, rng)
        made.append((store.publish(arrays, parent=made[-1][0].version), arrays))
    return made


def test_a_chain_comes_back(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """Every link of a long chain is bit-equal, carries the frame, and each tenth one is an anchor."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 22)
    assert all(equal(store.fetch(version.version), wanted) for version, wanted in made)
    assert all(store.frame(version.version) == FRAME for version, _ in made)
    assert [i for i, (version, _) in enumerate(made) if version.kind == "anchor"] == [0, 10, 20]
    assert store.versions() == [version for version, _ in made]
    assert len(list((tmp_path / "frames").iterdir())) == 1
    delta = made[1][0]
    assert delta.parent == made[0][0].version and 0.04 < delta.changed_share < 0.06
    assert delta.stored_bytes < 0.2 * delta.full_bytes


def test_the_name_depends_on_content_alone(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """The same content has the same version as a delta and as an anchor; another frame makes another version."""
    made = chain(WeightStore(tmp_path / "a"), arrays, rng, 2)
    alone = WeightStore(tmp_path / "b").publish(made[1][1], parent=None, frame=FRAME)
    assert alone.version == made[1][0].version and alone.kind == "anchor" != made[1][0].kind
    assert WeightStore(tmp_path / "b").publish(made[1][1], parent=None).version != alone.version


def test_publishing_twice_changes_nothing(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """The same content again returns the first record, even under another parent."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.weights")}
    assert store.publish(arrays, parent=made[2][0].version, frame=FRAME) == made[0][0]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.weights")} == before


def test_a_large_change_is_an_anchor(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """Where nearly all bits change, or the layout does, the version is stored whole."""
    store = WeightStore(tmp_path)
    first = store.publish(arrays, parent=None)
    noise = {name: rng.integers(0, 2**16, a.shape, np.uint16) for name, a in arrays.items() if a.dtype == np.uint16}
    other_layout = store.publish(noise, parent=first.version)
    assert other_layout.kind == "anchor" and other_layout.changed_share == 1.0
    all_bits = {name: rng.integers(0, 2**16, a.shape, np.uint16) for name, a in noise.items()}
    assert store.publish(all_bits, parent=other_layout.version).kind == "anchor"
    assert equal(store.fetch(store.versions()[-1].version), all_bits)


@pytest.mark.parametrize("which", ["anchor", "delta", "frame"])
def test_every_damaged_byte_is_found(which: str, tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """A flipped bit anywhere, a cut, or a missing file of any kind is an error that names file and version."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 3)
    last = made[-1][0].version
    link = made[0 if which == "anchor" else 1][0].version
    path = next((tmp_path / "frames").iterdir()) if which == "frame" else tmp_path / "links" / f"{link}.weights"
    whole = path.read_bytes()

    def refused(kind: type[OstinatoError], version: str) -> None:
        with pytest.raises(kind) as caught:
            store.frame(last) if which == "frame" else store.fetch(last)
        assert str(path) in str(caught.value) and version in str(caught.value) and caught.value.hint

    places = sorted({*range(60), *rng.integers(0, len(whole), 60).tolist(), len(whole) - 1})
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        refused(DamagedWeightsError, last if which == "frame" else link)
    for length in (0, 10, 55, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(DamagedWeightsError, last if which == "frame" else link)
    path.unlink()
    refused(MissingError, last if which == "frame" else link)
    path.write_bytes(whole)
    assert equal(store.fetch(last), made[-1][1])


def test_publishing_again_mends(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """A damaged version is whole again after the same content was published again, and so are its children."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 3)
    for version, content in made[:2]:
        path = tmp_path / "links" / f"{version.version}.weights"
        path.write_bytes(path.read_bytes()[:-1])
        assert store.publish(content, parent=version.parent, frame=FRAME).version == version.version
    assert equal(store.fetch(made[2][0].version), made[2][1])


def test_a_link_under_another_name_is_refused(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """A whole link put in another's place is never taken for it."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 2)
    first, second = (tmp_path / "links" / f"{version.version}.weights" for version, _ in made)
    first.write_bytes(second.read_bytes())
    with pytest.raises(DamagedWeightsError, match="it holds version"):
        store.fetch(made[0][0].version)


def test_other_types_are_refused(tmp_path: Path) -> None:
    """A tensor that is neither BF16 bits nor float32 is named."""
    with pytest.raises(BadInputError, match="Tensor w has type float64"):
        WeightStore(tmp_path).publish({"w": np.zeros(3)}, parent=None)
    with pytest.raises(MissingError, match="v-0000000000000000"):
        WeightStore(tmp_path).publish({"w": np.zeros(3, np.uint16)}, parent="v-0000000000000000")


WRITER = """
import sys
import numpy as np
from pathlib import Path
from ostinato.weights import WeightStore
store, rng = WeightStore(Path(sys.argv[1])), np.random.default_rng(int(sys.argv[2]))
arrays = {"w": rng.integers(0, 2**16, 40_000, np.uint16), "n": rng.normal(size=99).astype(np.float32)}
parent = None
while True:
    version = store.publish(arrays, parent=parent, frame={"config.json": b"{}"})
    print(version.version, flush=True)
    parent, arrays = version.version, {**arrays, "w": arrays["w"] ^ (rng.random(40_000) < 0.02).astype(np.uint16)}
"""


def test_a_killed_publisher_leaves_whole_versions(tmp_path: Path) -> None:
    """After kill -9 at twenty random moments all that was announced can be fetched, and all that is there is whole."""
    delays = np.random.default_rng(20).uniform(0, 0.05, 20)
    for seed, delay in enumerate(delays):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(seed)], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert process.stdout is not None
        announced = [process.stdout.readline().strip()]
        time.sleep(delay)
        process.kill()
        announced += [line for line in process.stdout.read().split("\n") if len(line) == 18]
        process.wait()
        process.stdout.close()
        store = WeightStore(tmp_path)
        there = {version.version for version in store.versions()}
        assert set(announced) <= there
    for version in there:
        assert version_name(content_digest(store.fetch(version), store.get(version).frame)) == version
        assert store.frame(version) == {"config.json": b"{}"}


def test_links_of_the_first_layout_are_read(tmp_path: Path, arrays: Arrays, rng: np.random.Generator) -> None:
    """Their headers were not compressed."""
    store = WeightStore(tmp_path)
    made = chain(store, arrays, rng, 3)
    for path in tmp_path.rglob("*.weights"):
        magic, rest = LINK_MAGIC, path.read_bytes()[len(LINK_MAGIC) :]
        size = int.from_bytes(rest[32:36], "little")
        head = zstandard.ZstdDecompressor().decompress(rest[36 : 36 + size], max_output_size=1 << 20)
        old = hashlib.sha256(head).digest() + len(head).to_bytes(4, "little") + head + rest[36 + size :]
        path.write_bytes(magic.replace(b"2", b"1") + old)
    assert all(equal(store.fetch(version.version), wanted) for version, wanted in made)
