"""The page of a dataset: its card and gates, its rows, and predictions next to the eval rows."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.same_action import canonicalise_json
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import ForetraceWarning, PredictionError, Setting, StoreError
from foretrace.core.predictions import (
    PredictedCall,
    PredictionsFile,
    digest_dataset,
    find_first_object,
    read_calls,
    read_predictions,
)
from foretrace.core.progress import ProgressFunc
from foretrace.core.version import __version__
from foretrace.dataset.card import format_figures
from foretrace.dataset.demonstration import describe_demonstration
from foretrace.dataset.difficulty import describe_difficulty
from foretrace.dataset.parquet import measure_texts, read_rows
from foretrace.dataset.recipes.base import Config, load_configs
from foretrace.dataset.settings import SPLITS
from foretrace.dataset.tokenize import render_row
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport
from foretrace.report.page import Page, PageCounts, encode_json

_TEXTS = ("prompt", "completion", "chosen", "rejected")
_LISTED = ("key", "step", "action", "rejected_action", "tool", "rule", "family", "strength", "natural", "balanced")
_BYTES_PER_TOKEN = 3.5
_LENGTH_BINS = 24
_MAX_RESULT_BYTES = 64_000_000
_RESULTS: dict[str, type[ScoreReport] | type[ReplayReport]] = {"score": ScoreReport, "replay": ReplayReport}
_TEXTS_SHARE = 0.75
"""Share of a page that the texts of rows may fill; the rest is for the manifest and the lists."""


class RowLimits(msgspec.Struct, frozen=True):
    """Most rows of a config that a page shows."""

    of_split: int = 200
    """Rows of each split of `proposer` and `verifier`."""
    eval: int = 4_000


def is_dataset(folder: Path) -> bool:
    """Whether `build` wrote the folder."""
    try:
        manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return False
    return isinstance(manifest, dict) and {"settings", "configs", "gates"} <= manifest.keys()


def is_result_file(path: Path) -> bool:
    """Whether a file looks like a result of `score` or `replay`: one JSON document (predictions are JSON lines)."""
    return path.suffix.lower() == ".json" and path.is_file()


def read_result_file(path: Path) -> dict[str, Any]:
    """The result in a file, with the file's name and the kind of result: `score` or `replay`.

    Raises:
        StoreError: it cannot be read, or is not a result.
    """
    try:
        if path.stat().st_size > _MAX_RESULT_BYTES:
            raise StoreError(f"{path}: is too large for a result of `score` or `replay`")
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: is not JSON: {error}") from error
    for kind, record in _RESULTS.items():
        try:
            found = msgspec.convert(value, record)
        except msgspec.ValidationError:
            continue
        return {"name": path.name, "kind": kind, "found": msgspec.to_builtins(found)}
    raise StoreError(
        f"{path}: is not a result of `score` or `replay`: have them write one with ", Setting("out", "FILE.json")
    )


def write_dataset_page(
    page: Page,
    dataset: Path,
    predictions: Sequence[Path],
    limits: RowLimits,
    progress: ProgressFunc,
    *,
    results: Sequence[Path] = (),
    tokenizer: Any = None,
    title: str | None = None,
) -> PageCounts:
    """Put everything that a page of a dataset shows into `page`; the default title is the folder's name.

    Args:
        tokenizer: Rows are also shown as rendered by its chat template.

    Raises:
        BuildError: the chat template cannot render a row.
        StoreError: the dataset, or a result of `score` or `replay`, cannot be read.
        PredictionError: a file of predictions cannot be read, or none of them is for an eval row.
    """
    manifest: dict[str, Any] = msgspec.json.decode((dataset / "manifest.json").read_bytes())
    configs, files = load_configs(), [Guesses(path) for path in predictions]
    found = [read_result_file(path) for path in results]
    listed = {
        name: _Rows(page, name, tokenizer) for name in ("proposer", "verifier", "eval") if name in manifest["configs"]
    }
    sizes = {name: (limits.eval if name == "eval" else limits.of_split) for name in listed}
    total = sum(min(by["rows"], sizes[name]) for name in listed for by in manifest["configs"][name].values())
    done = 0
    for name, rows in listed.items():
        for split, row in _read_config(dataset, configs[name], manifest, sizes[name]):
            done += 1
            progress(f"reading {name} of {dataset}", done, total)
            gold = _read_gold(row) if name == "eval" else ()
            rows.add(split, row, [guesses.compare(row, gold) for guesses in files] if name == "eval" else [])
        rows.flush()
        if len(rows.index) < sum(by["rows"] for by in manifest["configs"][name].values()):
            rows.measure_all(_list_files(dataset, configs[name], manifest), configs[name])
    for guesses in files:
        guesses.check_fit(dataset)
    left_out = sum(rows.left_out for rows in listed.values())
    longest = max((rows.longest for rows in listed.values()), default=1)
    facts = {
        "kind": "dataset",
        "title": title or dataset.resolve().name,
        "version": __version__,
        "manifest": manifest,
        "figures": [format_figures(gate) for gate in manifest["gates"]],
        "demonstration": describe_demonstration(manifest),
        "about": {name: config.about for name, config in configs.items()},
        "actions": [str(action) for action in ActionType],
        "rows": {name: rows.index for name, rows in listed.items()},
        "lengths": {name: rows.describe_lengths(longest) for name, rows in listed.items()},
        "difficulty": {name: describe_difficulty(each) for name, each in manifest.get("difficulty", {}).items()},
        "strengths": {name: rows.strengths for name, rows in listed.items()},
        "predictions": [guesses.describe() for guesses in files],
        "results": found,
        "left_out": left_out,
    }
    page.put("meta", facts)
    return PageCounts(sum(len(rows.index) for rows in listed.values()), left_out)


def _read_config(
    dataset: Path, config: Config, manifest: dict[str, Any], limit: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first rows of each split, which `build` has shuffled."""
    for split in SPLITS:
        paths = _list_files(dataset, config, manifest, (split,))
        try:
            rows = itertools.chain.from_iterable(read_rows(path, config) for path in paths)
            yield from ((split, row) for row in itertools.islice(rows, limit))
        except OSError as error:
            raise StoreError(f"{dataset}: cannot read its rows: {error}") from error


def _list_files(dataset: Path, config: Config, manifest: dict[str, Any], splits: Sequence[str] = SPLITS) -> list[Path]:
    by_split = manifest["configs"][config.name]
    return [dataset / name for split in splits for name in by_split.get(split, {}).get("files", ())]


def _read_gold(row: dict[str, Any]) -> tuple[PredictedCall, ...]:
    """All calls of the step, from its completion."""
    value = find_first_object(row["completion"][-1].content)
    return read_calls(value) if isinstance(value, dict) else ()


class _Rows:
    """The rows of one config: one line per row for the list, and the texts in pieces."""

    def __init__(self, page: Page, name: str, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.index: list[dict[str, Any]] = []
        self.left_out = 0
        self.strengths: Counter[str] = Counter()
        """Pairs by family and strength."""
        self._page = page
        self._name = name
        self._lengths: list[int] = []
        self._waiting: list[msgspec.Raw] = []
        self._bytes = self._piece = 0

    def add(self, split: str, row: dict[str, Any], guesses: list[dict[str, Any] | None]) -> None:
        texts: dict[str, Any] = {name: row[name] for name in _TEXTS if name in row}
        line = {name: row[name] for name in _LISTED if name in row}
        if "arguments" in row:
            line["arguments"] = row["arguments"][:SHOWN_ARGUMENTS]
        if guesses:
            line["guesses"] = [guess and describe_guess_line(guess) for guess in guesses]
            texts["guesses"] = guesses
        if self._tokenizer is not None:
            texts["rendered"] = render_row(self._tokenizer, row["prompt"], row.get("completion") or row["chosen"])
        self.index.append(line | {"split": split, "piece": self._piece, "place": len(self._waiting)})
        if "family" in row:
            self.strengths[f"{row['family']} {row['strength']}"] += 1
        self._lengths.append(sum(len(message.content.encode("utf-8", "replace")) for message in row["prompt"]))
        data = encode_json(texts).encode()
        self._waiting.append(msgspec.Raw(data))
        self._bytes += len(data)
        if self._bytes >= self._page.chunk_bytes:
            self.flush()

    def flush(self) -> None:
        if self._waiting and not self._page.put(f"{self._name}-{self._piece}", self._waiting, share=_TEXTS_SHARE):
            left = self.index[-len(self._waiting) :]
            self.left_out += len(left)
            for line in left:
                line["piece"] = -1
        self._piece += bool(self._waiting)
        self._waiting, self._bytes = [], 0

    def measure_all(self, paths: Sequence[Path], config: Config) -> None:
        """Measure all rows of the config rather than only the listed ones.

        Raises:
            StoreError: a file cannot be read.
        """
        try:
            self._lengths = [n for path in paths for lengths in measure_texts(path, "prompt") for n in lengths]
            if "family" in config.columns:
                rows = (row for path in paths for row in read_rows(path, config, ["family", "strength"]))
                self.strengths = Counter(f"{row['family']} {row['strength']}" for row in rows)
        except OSError as error:
            raise StoreError(f"{paths[0].parent}: cannot read its rows: {error}") from error

    @property
    def longest(self) -> int:
        """Approximate tokens of the longest prompt."""
        return max(1, round(max(self._lengths, default=0) / _BYTES_PER_TOKEN))

    def describe_lengths(self, top: int) -> dict[str, Any]:
        """Approximate tokens of the prompts: a histogram of the lengths up to `top`, and the median."""
        tokens = sorted(round(length / _BYTES_PER_TOKEN) for length in self._lengths)
        if not tokens:
            return {"bins": [], "top": 0, "median": 0, "rows": 0}
        counts = Counter(min(_LENGTH_BINS - 1, length * _LENGTH_BINS // top) for length in tokens)
        bins = [counts[place] for place in range(_LENGTH_BINS)]
        return {"bins": bins, "top": top, "median": tokens[len(tokens) // 2], "rows": len(tokens)}


_TEXT_CHARACTERS = 4_000
SHOWN_ARGUMENTS = 160
"""Most characters of a call's arguments in a line of a list."""


class Guesses:
    """The first guess for each eval row, from one file of predictions."""

    def __init__(self, path: Path) -> None:
        self.file: PredictionsFile = read_predictions(path)
        self._by_step = self.file.by_step()
        self._confusion: Counter[tuple[str, str]] = Counter()
        self._right: Counter[str] = Counter()
        self._found = 0

    def compare(self, row: Mapping[str, Any], gold: tuple[PredictedCall, ...]) -> dict[str, Any] | None:
        """Count the guess for an eval row; returns what the page shows of it, or `None` if there is no guess."""
        guesses = self._by_step.get((row["key"], row["step"]))
        if not guesses:
            self._confusion[row["action"], "(none)"] += 1
            return None
        guess = guesses[0]
        self._found += 1
        right_type = guess.action == row["action"]
        right_call = bool(gold) and _write_calls(guess.calls) == _write_calls(gold)
        self._confusion[row["action"], guess.action or "(none)"] += 1
        self._right.update(["type"] * right_type + ["call"] * right_call)
        return {
            "action": guess.action,
            "calls": [[call.tool, call.arguments] for call in guess.calls],
            "text": (guess.completion or "")[:_TEXT_CHARACTERS],
            "confidence": guess.confidence,
            "right": right_type,
            "right_call": right_call,
            "others": len(guesses) - 1,
        }

    def check_fit(self, dataset: Path) -> None:
        """Check the file after all rows were compared; warns if it was made for another version of the dataset.

        Raises:
            PredictionError: no prediction is for an eval row of the page.
        """
        path, header = self.file.path, self.file.header
        self.file.check_not_empty()
        if not self._found:
            raise PredictionError(
                f"{path}: none of its {len(self.file.rows):,} predictions is for an eval row of {dataset}; name the "
                "dataset whose eval rows were predicted"
            )
        if header is not None and header.dataset and header.dataset != digest_dataset(dataset):
            what = f"{path}: was made for another dataset, or another version of {dataset}: what fits is shown"
            warnings.warn(ForetraceWarning(what), stacklevel=2)

    def describe(self) -> dict[str, Any]:
        """The file as a whole, after all rows were compared; `confusion` has gold, guess and count."""
        return {
            "name": Path(self.file.path).name,
            "predictor": self.file.predictor,
            "found": self._found,
            "right": self._right["type"],
            "right_call": self._right["call"],
            "problems": self.file.problems,
            "confusion": [[gold, guess, count] for (gold, guess), count in sorted(self._confusion.items())],
        }


def describe_guess_line(guess: Mapping[str, Any]) -> list[Any]:
    """A guess in the line of a row: action, whether it and its calls are right, confidence, first call."""
    tool, arguments = guess["calls"][0] if guess["calls"] else (None, "")
    return [
        *(guess[name] for name in ("action", "right", "right_call", "confidence")),
        tool,
        arguments[:SHOWN_ARGUMENTS],
    ]


def _write_calls(calls: tuple[PredictedCall, ...]) -> list[tuple[str, str]]:
    return [(call.tool, canonicalise_json(call.arguments)) for call in calls]
