"""The page: it carries all that it shows, loads nothing, and shows words as words."""

import base64
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

from ostinato.dashboard import accounts_line, write_report
from ostinato.store import Ledger

PNG = b"\x89PNG\r\n\x1a\n"


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """The words, with single spaces between them."""
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Page:
    """Parse a page."""
    return Page(path.read_text())


def test_the_page_loads_nothing(ledger: Ledger, tmp_path: Path) -> None:
    """No address but data: ones, no script, no form, and a policy that would forbid them."""
    page = read(write_report(ledger, tmp_path, title="A run"))
    policy = [attributes for tag, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert policy[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert not {"script", "link", "iframe", "form", "object", "base"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:") is not None
            assert str(attributes.get(name, "data:")).startswith("data:")
    assert not re.search(r"url\(|@import|https?://", (tmp_path / "report.html").read_text())


def test_hostile_words_are_shown_as_words(ledger: Ledger, tmp_path: Path) -> None:
    """A reason, a counter and an incident with markup in them."""
    page = read(write_report(ledger, tmp_path, title="<b>A run</b>", note="a <i>note</i>"))
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "b", "i"})
    assert page.text.count("<script>alert('reason')</script> & \"more\"") == 3
    assert "<b>A run</b>" in page.text
    assert "a <i>note</i>" in page.text
    assert "<i>disk</i>" in page.text


def test_everything_is_on_the_page(ledger: Ledger, tmp_path: Path) -> None:
    """Every version, every verdict, every look, the accounts, the counts."""
    text = read(write_report(ledger, tmp_path, title="A run")).text
    for version in ledger.versions():
        assert version.version in text
    for experiment in ledger.experiments():
        assert experiment.verdict in text
    assert "-40.0 pt [-47.0, -33.0]" in text
    assert "persistence +2.0 pt [-2.0, +6.0]" in text
    assert accounts_line(ledger) in text
    assert "Feedback whose response is not stored yet: 1." in text
    assert "http.requests 2,801" in text
    assert "2,200 kB" not in text, "what is stored counts, not the full size"
    assert "1,700 kB" in text


def test_the_picture_is_in_the_page_and_beside_it(ledger: Ledger, tmp_path: Path) -> None:
    """One PNG, large enough to read."""
    page = read(write_report(ledger, tmp_path, title="A run"))
    picture = (tmp_path / "curves.png").read_bytes()
    assert picture.startswith(PNG)
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (1430, 832)
    (image,) = (attributes for tag, attributes in page.tags if tag == "img")
    source = image["src"]
    assert source is not None
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == picture
    assert image["alt"]


def test_a_ledger_without_anything_is_no_special_case(tmp_path: Path) -> None:
    """The report is written from the first moment on."""
    with Ledger.open(tmp_path) as ledger:
        path = write_report(ledger, tmp_path, title="A run")
        assert (tmp_path / "curves.png").read_bytes().startswith(PNG)
    text = read(path).text
    assert "No version was published yet." in text
    assert "No candidate was offered yet." in text
    assert "0 sessions = 0 open (balanced)" in text


def test_a_report_replaces_the_one_before(ledger: Ledger, tmp_path: Path) -> None:
    """Whole, under the same name; nothing else is left in the folder."""
    write_report(ledger, tmp_path / "out", title="The first")
    write_report(ledger, tmp_path / "out", title="The second")
    assert "The second" in (tmp_path / "out" / "report.html").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["curves.png", "report.html"]
