"""The seed model's tokenizer: byte-level BPE over standard-library source and rendered trajectories.

Words keep a leading space, digits stand alone (so numbers are copied digit by digit), and a newline goes
together with the indent that follows it.
"""

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from ostinato.records import MissingError
from ostinato.render import SPECIAL_TOKENS
from ostinato.tinyworld import Trajectory, sample_trajectories

VOCABULARY = 1024
TRAJECTORIES = 3000
"""How many trajectories the tokenizer is trained on."""
_PATTERN = r"\n *|[ _]?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]=?|\s+"
_MODULES = """
abc argparse ast base64 bdb bisect calendar cmd code codecs colorsys compileall configparser
contextlib copy csv dataclasses datetime difflib dis doctest enum filecmp fileinput fnmatch
fractions functools getopt glob graphlib gzip hashlib heapq hmac inspect keyword linecache locale
numbers operator optparse os pathlib pickle pprint queue random reprlib sched shelve shlex shutil
statistics string stringprep tabnanny tempfile textwrap timeit token tokenize trace types uuid
zipapp
"""


def library_sources() -> dict[str, str]:
    """Source texts of the running Python's standard library, by module name (PSF licence, version 2)."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = {name: folder / f"{name}.py" for name in _MODULES.split()}
    texts = {name: path.read_text("utf-8") for name, path in found.items() if path.is_file()}
    if len(texts) < len(_MODULES.split()) // 2:
        raise MissingError(
            f"The standard library's sources are not in {folder}.", hint="Use a Python that ships them as .py files."
        )
    return texts


def plain_texts(trajectory: Trajectory) -> Iterator[str]:
    """The texts of a trajectory that get tokenised, one by one."""
    for message in trajectory.messages:
        yield message.content
        for call in message.tool_calls:
            yield call.name
            yield from (str(value) for value in call.arguments.values())


def train_tokenizer(folder: Path, sources: dict[str, str], seed: int = 0) -> None:
    """Train on `sources` and on fresh trajectories, and write `tokenizer.json` and `tokenizer_config.json`."""
    tokenizer = HfTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(sources, seed), trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<|pad|>",
        "bos_token": "<|bos|>",
        "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "ostinato_format": "tiny",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _corpus(sources: dict[str, str], seed: int) -> Iterator[str]:
    # A slice of each module, so that the library does not crowd out the words of the tasks.
    yield from (text[:800] for text in sources.values())
    for trajectory in sample_trajectories("seed", TRAJECTORIES, seed):
        yield from plain_texts(trajectory)
