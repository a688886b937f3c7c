"""A file of predictions: a header line, then one line of JSON for each guess at a step, best first.

    {"predictions": 1, "predictor": "markov:2", "dataset": "5f0c...", "config": "eval", ...}
    {"key": K, "step": S, "rank": 1, "prediction": {"action": A, "tool": T, "arguments": {..}}, "confidence": .7, ...}

A file from elsewhere does not need a header and may leave out everything but `key`, `step` and the guess. It may give
the guess as `prediction` (an object or its JSON text), as `completion` (the model's text, which should be the JSON
object that the prompt asks for), or as `action`, `tool` and `arguments` in the line itself. It may also be Parquet, or
a folder of such files.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from foretrace.core.digest import digest
from foretrace.core.errors import PredictionError, find_first_line
from foretrace.core.files import atomic_file
from foretrace.core.places import make_local_path

FORMAT = 1
"""Version of the file format, written into the header."""
GUESSES_FILE = "guesses.jsonl"
"""What `generate --speculate` writes into a traces folder."""
_DAY_S = 86_400.0
HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)


class PredictionId(NamedTuple):
    """What a prediction is for."""

    key: str
    """Key of the trace."""
    step: int
    """Index of the step's assistant message in the trace."""


class PredictedCall(msgspec.Struct, frozen=True):
    """One call of a guess."""

    tool: str
    arguments: str = "{}"
    """JSON text."""


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One guess at what the agent does at a step."""

    key: str
    step: int
    rank: int = 1
    """1 is the guess that the predictor considers most likely."""
    action: str | None
    """None if the model's text contains no action."""
    calls: tuple[PredictedCall, ...] = ()
    """The calls of the step, in order; empty if it calls no tool, or if only the action is guessed."""
    completion: str | None = None
    confidence: float | None = None
    """Probability in [0, 1] that the guess is right, as the predictor estimates it."""
    seconds: float | None = None
    """Seconds that the predictor took for all guesses at this step."""
    tokens: int | None = None
    score: float | None = None
    """A verifier's score of the guess: higher is better. It need not be a probability."""


class PredictionsHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of predictions is about."""

    predictions: int = FORMAT
    predictor: str = ""
    verifier: str | None = None
    verifier_latency_s: dict[str, float] = {}
    """Seconds that the verifier took for one score: `p50`, `p95`, `mean`."""
    dataset: str = ""
    """Digest of the dataset's manifest (`digest_dataset`)."""
    built_from: dict[str, Any] = {}
    """What determines the dataset's rows (`describe_origin`). It shows whether another build has the same rows."""
    config: str = "eval"
    """Config of the predicted rows: `eval` or `proposer`."""
    split: str = ""
    """Split of the predicted rows: `train`, `validation` or `test`; empty if unknown."""
    target: str = "call"
    """What was predicted: `type` or `call`."""
    k: int = 1
    steps: int = 0
    seed: int = 0
    faults: dict[str, int] = {}
    """Steps without a guess, by reason: `raised`, `bad_guess`, `no_guess`."""
    latency_s: dict[str, float] = {}
    """Seconds per step: `p50`, `p95`, `mean`."""
    settings: dict[str, Any] = {}
    """Everything else that is needed to repeat the run: sampling, folds, model."""
    versions: dict[str, str] = {}


class PredictionsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read: its content, and what was wrong with it."""

    path: str
    header: PredictionsHeader | None
    """None if the file has none."""
    rows: tuple[Prediction, ...]
    problems: dict[str, int]
    """Number of lines with each kind of fault that is counted but not refused: `torn_last_line` (left out),
    `no_action`, `bad_confidence`, `bad_seconds`, `bad_tokens`, `bad_score` (the value is treated as not given)."""

    @property
    def predictor(self) -> str:
        return "" if self.header is None else self.header.predictor

    def check_not_empty(self) -> None:
        if not self.rows:
            raise PredictionError(f"{self.path}: holds no predictions")
        if all(row.action is None for row in self.rows):
            raise PredictionError(
                f"{self.path}: none of its {len(self.rows):,} predictions names an action; give each a `prediction` "
                '{"action": A, "tool": T, "arguments": {...}}'
            )

    def by_step(self) -> dict[tuple[str, int], list[Prediction]]:
        """The guesses at each (key, step), ordered by rank."""
        found: dict[tuple[str, int], list[Prediction]] = {}
        for row in self.rows:
            found.setdefault((row.key, row.step), []).append(row)
        for guesses in found.values():
            guesses.sort(key=lambda row: row.rank)
        return found


def digest_dataset(dataset: Path) -> str:
    """Digest of a dataset's manifest, which holds the digests of its inputs, its settings and its versions."""
    return hashlib.blake2b(_read_manifest(dataset), digest_size=16).hexdigest()


def _read_manifest(dataset: Path) -> bytes:
    try:
        return (dataset / "manifest.json").read_bytes()
    except OSError:
        raise PredictionError(f"{dataset}: is not a foretrace dataset; name the folder that `build` wrote") from None


def digest_traces(traces: Iterable[tuple[str, str]]) -> str:
    """Digest of the traces that a dataset is built from, by key and id. The order of the traces does not matter."""
    return digest(*(part for trace in sorted(traces) for part in trace), size=16)


_ROW_SETTINGS = (
    *("target", "window", "max_context_tokens", "outcomes", "split", "seed", "corrections"),
    *("keep_flagged", "dedup", "license_allow", "license_deny", "decontaminate", "keep_contaminated"),
)


def describe_origin(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What determines the rows of a dataset, from its manifest: its traces, and the settings and versions that turn
    them into prompts, answers and splits. Datasets with the same origin have the same rows."""
    settings, versions = manifest["settings"], manifest["versions"]
    return {
        "traces": manifest["inputs"]["digest"],
        **{name: settings[name] for name in _ROW_SETTINGS if settings.get(name) is not None},
        "token_counter": manifest["token_counter"],
        **{name: versions[name] for name in ("taxonomy", "renderer")},
    }


def read_origin(dataset: Path) -> dict[str, Any]:
    """What determines the rows of a dataset; empty if its manifest is incomplete."""
    manifest = _read_manifest(dataset)
    try:
        return describe_origin(json.loads(manifest))
    except (ValueError, KeyError, TypeError):
        return {}


_encode_target = msgspec.json.Encoder(order="deterministic").encode


class CallValue(msgspec.Struct, frozen=True):
    """A call as a target has it."""

    tool: str | None
    arguments: Any


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step as the completions of a dataset have it."""

    action: str | None
    tool: str | None
    arguments: Any
    more: list[CallValue] = []


def make_target(row: Prediction) -> Target:
    """The guess in the form of a dataset's targets."""
    first, *more = [CallValue(call.tool, _read_arguments(call)) for call in row.calls] or [CallValue(None, {})]
    return Target(row.action, first.tool, first.arguments, more)


def write_target(row: Prediction) -> str:
    """The guess as the text of such a target."""
    return _encode_target(make_target(row)).decode()


def _read_arguments(call: PredictedCall) -> Any:
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        return call.arguments


def write_predictions(path: Path, header: PredictionsHeader, rows: Iterable[Prediction]) -> None:
    with atomic_file(path) as file:
        file.write(msgspec.json.encode(header) + b"\n")
        for row in rows:
            file.write(encode_prediction(row) + b"\n")


def encode_prediction(row: Prediction) -> bytes:
    """One line, without its newline; unknown fields are left out."""
    line: dict[str, Any] = {"key": row.key, "step": row.step, "rank": row.rank}
    if row.action is not None:
        line["prediction"] = make_target(row)
    elif row.completion is None:
        line["completion"] = ""
    for name in ("completion", "confidence", "seconds", "tokens", "score"):
        if (value := getattr(row, name)) is not None:
            line[name] = value
    return msgspec.json.encode(line)


def read_header(path: Path) -> PredictionsHeader | None:
    """The header of a file; None if it has none."""
    for number, value in read_json_lines(list_files(path)[0], "prediction", Counter()):
        if number == 1 and "predictions" in value:
            return read_format_header(value, PredictionsHeader, f"{path} line 1")
        break
    return None


def list_files(path: Path) -> list[Path]:
    """The file, or the files of a folder by name; of a traces folder, the guesses that were made with it."""
    if not path.is_dir():
        return [path]
    if (path / GUESSES_FILE).is_file():
        return [path / GUESSES_FILE]
    files = sorted(each for each in path.iterdir() if each.suffix in (".jsonl", ".parquet"))
    if not files:
        raise PredictionError(f"{path}: holds no predictions; they are read from files NAME.jsonl and NAME.parquet")
    return files


def read_predictions(path: str | Path) -> PredictionsFile:
    """Read predictions: a file, or all files `.jsonl` and `.parquet` of a folder, whose first header counts.

    Raises:
        UsageError: the path is an address in an object store.
        PredictionError: the file cannot be read, a line is not a prediction, or two guesses at a step have the same
            rank.
    """
    path = make_local_path(path)
    header: PredictionsHeader | None = None
    problems: Counter[str] = Counter()
    rows: list[Prediction] = []
    seen: set[tuple[str, int, int]] = set()
    lines = ((file, *line) for file in list_files(path) for line in read_json_lines(file, "prediction", problems))
    for file, number, value in lines:
        where = f"{file} line {number}"
        if number == 1 and "predictions" in value:
            found = read_format_header(value, PredictionsHeader, where)
            if header is not None and (found.dataset, found.target) != (header.dataset, header.target):
                raise PredictionError(f"{where}: is for another dataset than the files before it")
            header = header or found
            continue
        row = _read_row(value, where, problems)
        at = (row.key, row.step, row.rank)
        if at in seen:
            raise PredictionError(
                f"{where}: a second prediction for {row.key} step {row.step} rank {row.rank}; guesses at one step "
                "need different ranks"
            )
        seen.add(at)
        rows.append(row)
    return PredictionsFile(path=str(path), header=header, rows=tuple(rows), problems=dict(sorted((+problems).items())))


def read_json_lines(path: Path, kind: str, problems: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file, each with its line number. An incomplete last line is left out and counted in
    `problems` as `torn_last_line`; `kind` is what errors call a line. The rows of a Parquet file count as lines,
    without nulls."""
    if path.suffix == ".parquet":
        yield from enumerate(_read_parquet(path), 1)
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PredictionError(f"{path}: cannot read: {error.strerror}") from None
    if b"\0" in data[:4096] or data.startswith(b"\x1f\x8b"):
        raise PredictionError(f"{path}: is compressed, or is not text; give JSON lines, or a file NAME.parquet")
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and not data.endswith(b"\n"):
                problems["torn_last_line"] += 1
                return
            raise PredictionError(f"{where}: is not a {kind}: {error}") from None
        if not isinstance(value, dict):
            raise PredictionError(f"{where}: is not a {kind}: it is not a JSON object")
        yield number, value


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(use_threads=False):
                yield from _drop_nulls(batch.to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise PredictionError(f"{path}: cannot be read as Parquet: {find_first_line(error)}") from None


def _drop_nulls(value: Any) -> Any:
    """The value without null fields: a struct in Parquet has the fields of all rows, null where a row has none."""
    if isinstance(value, dict):
        return {name: _drop_nulls(each) for name, each in value.items() if each is not None}
    return [_drop_nulls(each) for each in value] if isinstance(value, list) else value


def read_place(value: dict[str, Any], where: str, kind: str) -> tuple[str, int]:
    """Key and step of a line."""
    if "key" not in value or "step" not in value:
        raise PredictionError(f"{where}: is not a {kind}: it has no key or no step")
    step = _read_int(value["step"])
    if step is None:
        raise PredictionError(f"{where}: is not a {kind}: its step is not a number")
    return _replace_lone_surrogates(str(value["key"])), step


def read_rank(value: dict[str, Any], where: str, kind: str) -> int:
    """Rank of a line; 1 if not given."""
    rank = _read_int(value.get("rank", 1))
    if rank is None or rank < 1:
        raise PredictionError(f"{where}: is not a {kind}: its rank is not a number from 1 on")
    return rank


def read_format_header(value: dict[str, Any], form: type[HeaderT], where: str) -> HeaderT:
    """The header of a file that foretrace wrote, whose first field is the version of its format."""
    name = form.__struct_fields__[0]
    kind = name.replace("_", " ")
    if value[name] != FORMAT:
        raise PredictionError(f"{where}: format {value[name]!r} of {kind} is not known; this reads {FORMAT}")
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise PredictionError(f"{where}: is not a header of {kind}: {error}") from None


def _read_row(value: dict[str, Any], where: str, problems: Counter[str]) -> Prediction:
    key, step = read_place(value, where, "prediction")
    rank = read_rank(value, where, "prediction")
    completion = value.get("completion")
    if isinstance(completion, list) and completion and isinstance(completion[-1], dict):  # messages
        completion = completion[-1].get("content")
    completion = _replace_lone_surrogates(completion) if isinstance(completion, str) else None
    action, calls = read_guess(value, completion)
    problems["no_action"] += action is None
    tokens = read_number(value, "tokens", problems, 0.0, 1e12)
    return Prediction(
        key=key,
        step=step,
        rank=rank,
        action=action,
        calls=calls,
        completion=completion,
        confidence=read_number(value, "confidence", problems, 0.0, 1.0),
        seconds=read_number(value, "seconds", problems, 0.0, _DAY_S),
        tokens=None if tokens is None else int(tokens),
        score=read_number(value, "score", problems, -math.inf, math.inf),
    )


def _replace_lone_surrogates(text: str) -> str:
    """The text with `?` for lone surrogates, which JSON can express but UTF-8 files cannot hold."""
    return text.encode("utf-8", "replace").decode()


def read_guess(value: dict[str, Any], completion: str | None) -> tuple[str | None, tuple[PredictedCall, ...]]:
    """Action and calls of a line; (None, ()) if it has no guess."""
    guess = value.get("prediction")
    if guess is None:
        guess = value if "action" in value or completion is None else completion
    if isinstance(guess, str):
        guess = find_first_object(guess)
    if not isinstance(guess, dict) or not isinstance(guess.get("action"), str):
        return None, ()
    return _replace_lone_surrogates(guess["action"]), read_predicted_calls(guess)


def read_predicted_calls(guess: dict[str, Any]) -> tuple[PredictedCall, ...]:
    """The calls of a target's JSON object: its own, and those under `more`."""
    more = guess.get("more")
    found: list[PredictedCall] = []
    for item in (guess, *(more if isinstance(more, list) else ())):
        tool = item.get("tool") if isinstance(item, dict) else None
        if isinstance(tool, str) and tool:
            arguments = item.get("arguments")
            arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            found.append(PredictedCall(*map(_replace_lone_surrogates, (tool, arguments))))
    return tuple(found)


def find_first_object(text: str) -> Any:
    """The JSON value at the start of a completion, after any thinking and with or without a code fence. Text that
    follows it is ignored. None if there is no JSON value."""
    text = text.rpartition("</think>")[2].strip()
    if text.startswith("```"):
        text = text.partition("\n")[2].strip()
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _read_int(value: Any) -> int | None:
    """A 64-bit integer, which may be digits in a text, or a float in Parquet; None for anything else."""
    is_written = isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value)
    number = int(value) if is_written or (isinstance(value, float) and value.is_integer()) else value
    good = isinstance(number, int) and not isinstance(number, bool) and -(2**63) <= number < 2**63
    return int(number) if good else None


def read_number(
    value: dict[str, Any], name: str, problems: Counter[str], lowest: float, highest: float
) -> float | None:
    """A number of a line. If it is invalid or out of range, the result is None and `problems` counts the fault."""
    number = value.get(name)
    if number is None:
        return None
    good = isinstance(number, (int, float)) and not isinstance(number, bool)
    # NaN and the infinities are in no range. Neither is an integer that is too large for a float.
    if good and lowest <= number <= highest and abs(number) <= sys.float_info.max:
        return float(number)
    problems[f"bad_{name}"] += 1
    return None
