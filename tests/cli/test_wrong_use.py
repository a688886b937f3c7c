"""Wrong use of any command is one line on stderr that says what to do, before anything is made."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.conftest import Run, swe_row, write_rows
from dataset.little import rows
from foretrace.cli.main import main

_GENERATE = "--problems jsonl --path {problems} --protocol tools --model scripted:{script} --out out"
_BEFORE = {
    "import": "--out out",
    "generate": _GENERATE,
    "build": "--out out",
    "predict": "{dataset} --out out.jsonl",
    "verify": "--out out.jsonl",
    "ceiling": "{traces}",
    "label": "{traces}",
    "show": "{traces}",
    "view": "{traces}",
    "export": "{traces} --out out.jsonl",
    "push": "{dataset} --org acme --dry-run",
    "replay": "{traces} --predictions",
    "doctor": "--workers 1",
}
"""What a command is given before what is wrong; a later option takes the place of an earlier one."""

WRONG = [
    ("import", "Missing argument 'SOURCE'"),
    ("import nothing_like_it {rows}", "nothing_like_it: no such file or source"),
    ("import no.such.module:Class {rows}", "cannot load source"),
    ("import swe_smith: {rows}", "no split behind the colon"),
    ("import swe_smith:tool --split xml", "two splits"),
    ("import chat {rows} --map messages", "FIELD=COLUMN"),
    ("import chat {rows} --map nofield=x", "unknown field 'nofield'"),
    ("import chat {rows} --map messages=x --map messages=y", "twice"),
    ("import chat", "name files, or --repo"),
    ("import swe_smith {rows} --map messages=x", "has no --map"),
    ("import swe_smith {rows} --revision abc", "would be ignored for local files"),
    ("import swe_smith {rows} --limit 0", "--limit"),
    ("import swe_smith {rows} --nonsense", "--nonsense"),
    ("import auto {rows} --map a=b", "--map is for a source that is named"),
    ("import auto {rows} --split x", "--split is for rows on the Hub"),
    ("import auto {rows} --since soon", "--since soon: write a date"),
    ("import auto https://example.org/x.jsonl", "hf://datasets/OWNER/NAME"),
    ("import jsonl {traces}", "is a traces folder already"),
    ("import chat {rows} --out ''", "'--out': name a file or a folder (see "),
    ("generate --model nobody:x", "unknown model 'nobody:x'"),
    ("generate --model scripted:none.jsonl", "cannot read the script none.jsonl"),
    ("generate --model-option depth=3", "one option: tokens=bytes"),
    ("generate --api-key-env NO_SUCH_KEY_HERE", "no such environment variable"),
    ("generate --problems builtin", "leave --path out"),
    ("generate --concurrency many", "choose auto, or 1 to 4096"),
    ("generate --keep some", "'--keep': 'some' is not one of 'all', 'success', 'ideal' (see `foretrace generate --"),
    ("generate --limit x", "'--limit': 'x' is not a valid integer"),
    ("generate --top-p 2", "'--top-p': 2.0 is not in the range 0<=x<=1"),
    ("generate --top-p nan", "top-p"),
    ("generate --temperature warm", "'--temperature': 'warm': choose a number that is not negative, or none (see "),
    ("generate --temperature inf", "choose a number that is not negative"),
    ("generate --part 3/2", "--part 3/2: write which part of how many"),
    ("generate --config nog.toml", "'--config': nog.toml: cannot read: No such file or directory"),
    ("generate --speculate memory", "--speculate memory learns from a dataset"),
    ("generate --speculate nofile.jsonl", "--speculate nofile.jsonl: no such file or folder"),
    ("generate --speculate tests --speculate-threshold 0.5", "--speculate-threshold needs a confidence"),
    ("generate --speculate tests --speculate-url http://u", "--speculate-url is for a predictor or a model"),
    ("generate --speculate-width 4", "--speculate-width 4 does nothing without --speculate"),
    ("build {traces} --private", "--private is for --push ORG"),
    ("build {traces} --allow-undecided", "--allow-undecided is for --push ORG"),
    ("build {traces} --allow-demo --push org", "leave out it or --push"),
    ("build {traces} --limit 3", "--limit is for sources that are imported"),
    ("build chat={rows} --limit x", "--limit x: write N or SOURCE=N"),
    ("build chat={rows} --limit toolbench=3", "--limit toolbench=3: the sources here are chat"),
    ("build auto", "name the files or folders"),
    ("build {rows}", "is a file; name a traces folder, or the file's source: SOURCE="),
    ("build swe_smith=", "no file behind the equals sign"),
    ("build nothing_like_it", "nothing_like_it: no such file or source"),
    ("build {traces} --split 0.8/0.2", "'--split': '0.8/0.2': write three shares, e.g. 0.8/0.1/0.1 (see "),
    ("predict", "name one that guesses: --predictor or --model"),
    ("predict --predictor majority --base-url http://x", "--base-url is for a model: name it with --model"),
    ("predict --predictor majority --k 0", "--k 0: give 1 or more"),
    ("predict --predictor majority --rows proposer --folds 1", "--folds 1: give 2 or more"),
    ("predict --predictor majority --out p.parquet", "p.parquet: name it .jsonl"),
    ("predict --predictor markov:9", "choose one of markov:1, markov:2, markov:3"),
    ("predict --predictor nothing", "unknown predictor 'nothing': choose one of majority, markov, regression, memory"),
    ("verify {known} {dataset}", "verify takes either --model or --scores"),
    ("verify {dataset} --model scripted:{script}", "verify takes a file of predictions and the dataset"),
    ("verify {known} {dataset} --pairs --model scripted:{script}", "--pairs takes one folder, the dataset"),
    ("verify {dataset} --pairs --scores {known}", "--pairs wants --model; scores of pairs"),
    ("verify {known} {dataset} --scores {known} --base-url http://x", "--base-url is for --model"),
    ("verify {known} {dataset} --model scripted:{script} --out s.parquet", "s.parquet: name it .jsonl"),
    ("score {known} {dataset} --cascade -1", "--cascade -1"),
    ("serve nothing {dataset}", "unknown predictor 'nothing'"),
    ("serve majority {dataset} --base-url http://x", "--base-url is for a model"),
    ("serve majority {dataset} --json", "--json needs --socket"),
    ("serve majority {dataset} --k 0", "--k 0: give 1 or more"),
    ("serve majority {dataset} --socket localhost:999999", "give HOST:PORT, or the path of a Unix socket"),
    ("ceiling --guess-latency -1", "--guess-latency -1.0: give seconds, 0 or more"),
    ("ceiling --allow local_write", "--allow local_write: is not safe to run early; what can be allowed is sandbox"),
    ("ceiling --seed -1", "--seed -1: give 0 or more"),
    ("ceiling --assume-times model=6", "--assume-times model=6: give tool too, in seconds"),
    ("ceiling --assume-times model=6,tool=-1", "tool is not between 0 and 86,400 s"),
    ("ceiling --assume-times model=6,tool=1,x=2", "unknown name 'x'; take model"),
    ("ceiling --assume-times nowhere", "give tracelab, or seconds such as model=6,tool=0.5"),
    ("effects --check ls", "'ls' is not a call"),
    ("effects --check {{}} --out x", "--check takes no traces and writes no file"),
    ("effects {traces}", "effects takes a traces folder and --out, or --check"),
    ("effects {traces} --out e.csv", "e.csv: name it .json, the format that is written"),
    ("view --out v --single r.html", "--single writes one file, and --out a folder: leave one out"),
    ("label", "name a file to write: --out labels.parquet or --review r.csv"),
    ("label --out l.txt", "name it"),
    ("label --out {traces}/l.jsonl", "inside the traces folder"),
    ("label --review r.parquet", "name the review .csv or .jsonl"),
    ("label --review r.csv --out r.csv", "cannot be one file"),
    ("export --format nothing", "unknown format 'nothing': choose one of jsonl, chat, inline, openai"),
    ("export --format harbor_tasks", ", otlp, harbor-tasks, or module:Class"),
    ("export --format os:path", "'os:path' is not a format: it has no 'name'"),
    ("export --format jsonl --out l.txt", "name it"),
    ("export --format jsonl --out {traces}/l.jsonl", "inside the traces folder"),
    ("export --format inline --calls xml", "--calls xml: inline does not have that form"),
    ("export --format jsonl --calls verbatim", "--calls verbatim: jsonl does not have that form"),
    ("export --format sharegpt --calls native", "--calls native: sharegpt does not have that form"),
    ("show --step 2", "--step needs the KEY of a trace"),
    ("show --full", "--full needs the KEY of a trace"),
    ("show --corrections c.csv", "--corrections needs the KEY of a trace"),
    ("show swe_smith --all", "--all lists traces"),
    ("show swe_smith@local/tool:owner__one.0123abcd.func__aaa.a --step 3", "are numbered by their message: 2, 4, 6"),
    ("schema nothing", "no record 'nothing': choose one of Trace"),
    ("push --name=a/b", "--name"),
    ("doctor --sandbox lokal", "unknown sandbox 'lokal', did you mean local?: choose one of"),
    ("doctor --sandbox local,lokal", "unknown sandbox 'lokal'"),
    ("doctor --sandbox ,", "--sandbox names nothing"),
    ("doctor --min-level 0", "give --allow-weak-isolation if that is meant"),
    ("doctor --preload 'a b'", "preload 'a b'"),
    ("doctor --model demo --base-url http://127.0.0.1:9", "it takes no base URL, key, options, timeout or retries"),
    ("doctor --base-url http://127.0.0.1:9", "--base-url is for a model server: name one with --model"),
    ("doctor --max-tokens 5", "--max-tokens is for a model server"),
    ("problems check nope", "unknown problems 'nope': choose one of builtin, harbor, humaneval, jsonl, mbpp"),
    ("problems check jsonl", "--path FILE"),
    ("problems check mine.jsonl", "'mine.jsonl' is not a problem set; for a file of rows give jsonl:mine.jsonl"),
    ("problems check jsonl:mine.jsonl --path x.jsonl", "give one of them"),
]
"""Command lines that end with exit code 2, and what is said of them."""

FAILED = [
    ("import swe_smith nowhere.jsonl", "nowhere.jsonl: no such file"),
    ("import swe_smith --repo ./nowhere", "no such folder"),
    ("import chat {empty}", "holds no rows"),
    ("import swe_smith {broken}", "nothing was imported"),
    ("import chat {rows} --map messages=turnz", "there is no column turnz; the row has instance_id, messages"),
    ("import auto {rows} --since 2999-01-01", "were last changed before"),
    ("import auto x*.jsonl", "no file has a name like this"),
    ("generate --path {broken}", "none of its 1 problems can be used, e.g. row 0: not JSON"),
    ("build {traces} --corrections no.csv", "no.csv: no such file"),
    ("serve majority nothing", "nothing: is not a foretrace dataset"),
    ("serve majority {dataset} --socket /nowhere/s", "/nowhere/s: cannot be opened"),
    ("score {dataset} {known}", "the predictions come first"),
    ("score {other} {dataset}", "or --allow-other-version takes what fits"),
    ("replay {known}", "none of its 2 predictions is for a step of these traces; name the traces"),
    ('effects --check \'{{"name": "x"}}\' --manifest {empty}', "is not a manifest of effects"),
    ("label --out {rows}/l.jsonl", "cannot write"),
    ("label --out l.csv --corrections absent.csv", "absent.csv: no such file"),
    ("export --format jsonl --out {traces}", "is a folder"),
    ("show nothing", "no trace with key"),
    ("show swe_smith@local/tool:owner__one", "begins 2 keys"),
    ("view nowhere", "nowhere: no such file or folder"),
    ("problems check jsonl --path none.jsonl", "none.jsonl: no such file"),
    ("problems check jsonl --path {empty}", "there is no problem in it"),
]
"""Command lines that end with exit code 1."""


@pytest.fixture(scope="module")
def places(sample_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    swe = [swe_row("owner__one.0123abcd.func__aaa", attempt) for attempt in "ab"]
    known = [{"key": row["key"], "step": row["step"], "action": "repair"} for row in rows(sample_dataset, "eval")][:2]
    problem = {"id": "p", "statement": "Add 1.", "entry_point": "inc", "tests": ["assert inc(0) == 1"]}
    files = {
        "rows": swe,
        "problems": [problem],
        "script": [["x"]],
        "known": known,
        "other": [{"predictions": 1, "dataset": "00"}, *known],
        "empty": [],
        "broken": ["{broken"],
    }
    made = {name: write_rows(folder / f"{name}.jsonl", lines) for name, lines in files.items()}
    assert main(["import", "swe_smith", str(made["rows"]), "--out", str(folder / "traces"), "--quiet"]) == 0
    return {**made, "traces": folder / "traces", "dataset": sample_dataset.resolve()}


@pytest.mark.parametrize(("line", "said", "code"), [*((*case, 2) for case in WRONG), *((*case, 1) for case in FAILED)])
def test_one_line(run: Run, places: dict[str, Path], tmp_path: Path, line: str, said: str, code: int) -> None:
    verb, _, rest = line.partition(" ")
    words = f"{verb} {_BEFORE.get(verb, '')} {rest}".format(**places)
    done = run(*shlex.split(words), "--quiet")
    assert (done.code, done.err.count("\n")) == (code, 1), done.err
    assert not done.out or (verb, code) == ("import", 1), "an import that fails shows its counts"
    assert done.err.startswith("foretrace: ") and said in done.err, done.err
    assert not list(tmp_path.iterdir())
