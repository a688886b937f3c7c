"""The output of a page: a folder with data files that are loaded on demand, or one file that contains everything.

Whatever the values of a page contain, a browser reads them as data and never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.core.errors import Setting, StoreError
from foretrace.core.files import describe_write_error, replace_file

MARK = '<meta name="generator" content="foretrace">'
"""Part of every page: a folder or file that contains it may be overwritten."""
SINGLE_BYTES = 19_800_000
"""Most bytes of data in a single file: with its script and style it stays below 20 MB."""
_PIECES_SHARE = 0.75
"""Share of a page that its pieces may fill; the rest is for the lists."""
_POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
_IN_SCRIPT = {"\\": "\\\\", "'": "\\'", "<": "\\x3c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_MARKUP = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""`<` because of `</script` and `<!--`; old script engines treat the two separators as line ends."""


class PageCounts(NamedTuple):
    """What a page shows, in traces or rows."""

    listed: int
    left_out: int
    """Those shown only as a line in the list."""
    unreadable: int = 0


class PagePieces:
    """Values in pieces of a certain size, which the page loads one by one: `NAME-0`, `NAME-1`, ..."""

    def __init__(self, page: Page, name: str) -> None:
        self._page, self._name = page, name
        self._waiting: list[msgspec.Raw] = []
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self._left_out: list[dict[str, Any]] = []
        self.number = 0

    @property
    def place(self) -> int:
        return len(self._waiting)

    def add(self, value: Any, row: dict[str, Any]) -> None:
        """Add a value, of which `row` is the line in the page's list."""
        data = encode_json(value).encode()
        self._waiting.append(msgspec.Raw(data))
        self._rows.append(row)
        self._bytes += len(data)
        if self._bytes >= self._page.chunk_bytes:
            self._flush()

    def finish(self) -> list[dict[str, Any]]:
        self._flush()
        return self._left_out

    def _flush(self) -> None:
        if self._waiting:
            if not self._page.put(f"{self._name}-{self.number}", self._waiting, share=_PIECES_SHARE):
                self._left_out += self._rows
            self.number += 1
        self._waiting, self._rows, self._bytes = [], [], 0


class FolderPage:
    """`index.html`, `assets/` and `data/` in a folder, which is moved into place once everything is written."""

    chunk_bytes = 1_000_000
    """Approximate size of a piece that is loaded on demand."""
    limit = math.inf

    def __init__(self, folder: Path) -> None:
        _refuse_stranger(folder)
        self._folder = folder
        self._partial = folder.absolute().with_name(f".{folder.name}.partial")
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            (self._partial / "data").mkdir(parents=True)
        except OSError as error:
            raise StoreError(describe_write_error(folder, error)) from error

    def put(self, name: str, value: Any, *, share: float = math.inf) -> bool:
        """Add a value, unless this share of the limit would then be exceeded; returns whether it was added."""
        self._write(f"data/{name}.js", make_data_script(name, value))
        return True

    def finish(self, title: str) -> Path:
        """Write the page; returns the file to open."""
        for name in ("view.css", "view.js"):
            self._write(f"assets/{name}", read_asset(name))
        policy = f"{_POLICY}; script-src 'self' file:; style-src 'self' file:"
        head = '<link rel="stylesheet" href="assets/view.css">'
        body = '<script src="assets/view.js"></script>\n<script src="data/meta.js"></script>'
        self._write("index.html", _fill_template(title, policy, head, body))
        try:
            if self._folder.exists():
                shutil.rmtree(self._folder)
            self._partial.rename(self._folder)
        except OSError as error:
            raise StoreError(describe_write_error(self._folder, error)) from error
        return self._folder / "index.html"

    def discard(self) -> None:
        """Remove what was written, if `finish` was not reached."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _write(self, name: str, text: str) -> None:
        path = self._partial / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise StoreError(describe_write_error(path, error)) from error


class SinglePage:
    """A single file, e.g. to send by mail; what does not fit is left out. The methods are those of `FolderPage`."""

    chunk_bytes = 20_000

    def __init__(self, path: Path, limit: int = SINGLE_BYTES) -> None:
        if path.is_dir():
            raise StoreError(f"{path}: is a folder; name a file, e.g. {path / 'report.html'}")
        if path.exists() and not _is_ours(path):
            raise StoreError(f"{path}: exists and is not a page that foretrace wrote; choose another name")
        self._path = path
        self.limit = limit
        self._size = 0
        self._blocks: list[str] = []

    def put(self, name: str, value: Any, *, share: float = math.inf) -> bool:
        block = make_data_block(name, value)
        size = self._size + len(block.encode())
        if size > self.limit * share:
            return False
        self._size = size
        self._blocks.append(block)
        return True

    def finish(self, title: str) -> Path:
        style, script = read_asset("view.css"), read_asset("view.js")
        policy = f"{_POLICY}; script-src '{_digest(script)}'; style-src '{_digest(style)}'"
        body = f"{''.join(self._blocks)}<script>{script}</script>"
        replace_file(self._path, _fill_template(title, policy, f"<style>{style}</style>", body).encode())
        return self._path

    def discard(self) -> None:
        pass


Page = FolderPage | SinglePage


def encode_json(value: Any) -> str:
    """JSON of a value; NaN and infinity become null, and lone surrogates are written as escapes."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value))


def make_data_script(name: str, value: Any) -> str:
    """A script that passes `value` to the page, as one string of JSON: `__proto__` has no special meaning then."""
    return f"foretrace.take('{name}', '{_replace(encode_json(value), _IN_SCRIPT)}');\n"


def make_data_block(name: str, value: Any) -> str:
    """The same as an element inside a page, which a browser does not run."""
    return f'<script type="application/json" data-name="{name}">{_replace(encode_json(value), _IN_MARKUP)}</script>\n'


def _replace(text: str, escapes: dict[str, str]) -> str:
    for character, escape in escapes.items():
        if character in text:
            text = text.replace(character, escape)
    return text


def read_asset(name: str) -> str:
    return files("foretrace.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _fill_template(title: str, policy: str, head: str, body: str) -> str:
    given = {"title": html.escape(title), "policy": policy, "mark": MARK, "head": head, "body": body}
    return re.sub(r"\{\{(\w+)\}\}", lambda name: given[name[1]], read_asset("page.html"))


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(4096)
    except OSError:
        return False


def _refuse_stranger(folder: Path) -> None:
    """Refuse to overwrite anything but a page of foretrace, or to replace a folder that contains the current one."""
    here = Path.cwd()
    if folder.resolve() in (here, *here.parents):
        raise StoreError(f"{folder}: holds the current folder; name one for the page, e.g. ", Setting("out", "view"))
    if folder.is_file():
        raise StoreError(f"{folder}: is a file; name a folder, or write one file with ", Setting("single", str(folder)))
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder / "index.html"):
        raise StoreError(f"{folder}: exists and is not a page that foretrace wrote; choose another ", Setting("out"))
