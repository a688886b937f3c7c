"""The page of a dataset: its card and gates, its rows, and predictions next to the eval rows."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foretrace.actions.same_action import canonicalize_json
from foretrace.actions.taxonomy import ActionType
from foretrace.core.errors import ForetraceWarning, PredictionError, Setting, StoreError
from foretrace.core.predictions import PredictedCall, PredictionsFile, digest_dataset, read_predictions
from foretrace.core.progress import ProgressFunc
from foretrace.core.version import __version__
from foretrace.dataset.card import format_figures
from foretrace.dataset.demonstration import describe_demonstration
from foretrace.dataset.difficulty import describe_difficulty
from foretrace.dataset.parquet import read_rows
from foretrace.dataset.prompts import TOKENS_PER_BIN
from foretrace.dataset.recipes.base import Config, load_configs
from foretrace.dataset.settings import SPLITS
from foretrace.dataset.tokenize import render_row
from foretrace.evaluation.dataset_rows import read_target_calls
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport
from foretrace.report.page import Page, PageCounts, PagePieces

_TEXTS = ("prompt", "completion", "chosen", "rejected")
_LISTED = ("key", "step", "action", "rejected_action", "tool", "rule", "family", "strength", "natural", "balanced")
_RESULTS = {"score": ScoreReport, "replay": ReplayReport}


class RowLimits(msgspec.Struct, frozen=True):
    of_split: int = 200
    """Rows of each split of `proposer` and `verifier`."""
    eval: int = 4_000


def read_result(path: Path) -> dict[str, Any]:
    """What `score` or `replay` wrote into a file: its `name`, the `kind`, and what was `found`."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: is not JSON: {error}") from error
    for kind, record in _RESULTS.items():
        with contextlib.suppress(msgspec.ValidationError):
            return {"name": path.name, "kind": kind, "found": msgspec.to_builtins(msgspec.convert(value, record))}
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
    """Put everything that a page of a dataset shows into `page`; the default title is the folder's name. With a
    `tokenizer`, rows are also shown as its chat template renders them."""
    found = [read_result(path) for path in results]
    manifest: dict[str, Any] = msgspec.json.decode((dataset / "manifest.json").read_bytes())
    configs, files = load_configs(), [Guesses(path) for path in predictions]
    names = [name for name in ("proposer", "verifier", "eval") if name in manifest["configs"]]
    sizes = {name: (limits.eval if name == "eval" else limits.of_split) for name in names}
    total = sum(min(by["rows"], sizes[name]) for name in names for by in manifest["configs"][name].values())
    listed: dict[str, list[dict[str, Any]]] = {}
    left_out: list[dict[str, Any]] = []
    done = 0
    for name in names:
        pieces, index = PagePieces(page, name), listed.setdefault(name, [])
        for split, row in _read_config(dataset, configs[name], manifest, sizes[name]):
            done += 1
            progress(f"reading {name} of {dataset}", done, total)
            texts: dict[str, Any] = {field: row[field] for field in _TEXTS if field in row}
            line = {field: row[field] for field in _LISTED if field in row}
            if "arguments" in row:
                line["arguments"] = row["arguments"][:SHOWN_ARGUMENTS]
            if name == "eval" and files:
                gold = read_target_calls(row["completion"][-1].content)
                texts["guesses"] = guesses = [each.compare(row, gold) for each in files]
                line["guesses"] = [guess and describe_guess_line(guess) for guess in guesses]
            if tokenizer is not None:
                texts["rendered"] = render_row(tokenizer, row["prompt"], row.get("completion") or row["chosen"])
            line |= {"split": split, "piece": pieces.number, "place": pieces.place}
            index.append(line)
            pieces.add(texts, line)
        left_out += pieces.finish()
    for line in left_out:
        line["piece"] = -1
    for guesses in files:
        guesses.check_fit(dataset)
    facts = {
        "kind": "dataset",
        "title": title or dataset.resolve().name,
        "version": __version__,
        "manifest": manifest,
        "figures": [format_figures(gate) for gate in manifest["gates"]],
        "demonstration": describe_demonstration(manifest),
        "about": {name: config.about for name, config in configs.items()},
        "actions": [str(action) for action in ActionType],
        "rows": listed,
        "tokens_per_bin": TOKENS_PER_BIN,
        "difficulty": {name: describe_difficulty(each) for name, each in manifest.get("difficulty", {}).items()},
        "predictions": [guesses.describe() for guesses in files],
        "results": found,
        "left_out": len(left_out),
    }
    page.put("meta", facts)
    return PageCounts(sum(map(len, listed.values())), len(left_out))


def _read_config(
    dataset: Path, config: Config, manifest: dict[str, Any], limit: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    for split in SPLITS:
        paths = [dataset / name for name in manifest["configs"][config.name].get(split, {}).get("files", ())]
        try:
            rows = itertools.chain.from_iterable(read_rows(path, config) for path in paths)
            yield from ((split, row) for row in itertools.islice(rows, limit))
        except OSError as error:
            raise StoreError(f"{dataset}: cannot read its rows: {error}") from error


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
        """Check the file after all rows were compared; warns if it was made for another version of the dataset."""
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
    return [(call.tool, canonicalize_json(call.arguments)) for call in calls]
