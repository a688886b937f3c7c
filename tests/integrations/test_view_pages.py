"""The pages of `foretrace view` in a real browser: Chromium, driven by playwright, from disk.

Screenshots are kept in the folder that the environment variable FORETRACE_SCREENSHOTS names; `make test-integrations`
names screenshots/.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from urllib.request import urlopen

import msgspec
import pytest

import foretrace
from foretrace.core.errors import ForetraceWarning
from foretrace.core.predictions import Prediction, PredictionsHeader
from foretrace.core.store import write_traces
from foretrace.core.trace import Message, Outcome, Trace
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport
from foretrace.report import traces_page
from integrations.page_checks import CHECKS
from report.hostile_dataset import build_hostile_dataset, write_guesses, write_results
from report.hostile_fields import fill, list_names, make_filled_trace, make_text, poison
from report.hostile_traces import MARKUP, make_hostile_trace, make_long_trace, make_odd_traces, make_trace

pytestmark = pytest.mark.integration
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {"wide": (1000, 800), "phone": (390, 844)}


class Tab:
    """A page in the browser, and what went wrong in it."""

    def __init__(self, browser: Any, width: int = 1000, height: int = 800, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("dialog", lambda d: self.wrong.append(d.message))
        self.page.on("request", lambda r: None if r.url.startswith(("file:", "about:")) else self.wrong.append(r.url))

    def open(self, path: Path, place: str = "") -> None:
        self.page.goto("about:blank")  # else another place of the same page would not load it anew
        self.page.goto(path.resolve().as_uri() + place)
        self.page.wait_for_selector("#results table, #results .empty, .trace, .part-page, main > .empty")

    @contextlib.contextmanager
    def work(self, what: str) -> Iterator[list[float]]:
        """Seconds of the page's own work in the block, by its thread's clock: a busy machine adds nothing."""
        session = self.context.new_cdp_session(self.page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def read() -> float:
            found = session.send("Performance.getMetrics")["metrics"]
            return next(m["value"] for m in found if m["name"] == "TaskDuration")

        took: list[float] = []
        before, begun = read(), time.monotonic()
        yield took
        took.append(read() - before)
        print(f"{what}: {took[0]:.2f} s of the page's work, {time.monotonic() - begun:.2f} s in all")

    def texts(self, selector: str) -> list[str]:
        return self.page.eval_on_selector_all(selector, "nodes => nodes.map(n => n.textContent)")

    def wait_for(self, selector: str) -> None:
        self.page.wait_for_selector(selector, state="attached")

    def wait_for_rows(self, count: int) -> None:
        self.page.wait_for_selector(f"tbody tr:first-child:nth-last-child({count})")

    def keep(self, name: str) -> None:
        """A screenshot; and nothing may be wider than the window."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if folder := os.environ.get("FORETRACE_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (make test-integrations)")
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed (apt-get install chromium)")
    with sync.sync_playwright() as driver:
        # Its own sandbox needs rights that a container's root has not; the page is ours.
        opened = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield opened
        opened.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Opens tabs; at the end no script may have failed, and no request may have left."""
    tabs: list[Tab] = []

    def make(*given: Any) -> Tab:
        tabs.append(Tab(browser, *given))
        return tabs[-1]

    yield make
    for tab in tabs:
        assert tab.wrong == []
        assert tab.page.evaluate("[window.hacked, Object.prototype.polluted]") == [None, None]
        tab.context.close()


def make_pages(place: Path, traces: list[Trace]) -> tuple[Path, Path]:
    """The page of these traces in a folder, and as one file."""
    write_traces(traces, place / "traces")
    foretrace.view(place / "traces", out=place / "view")
    foretrace.view(place / "traces", single=place / "single.html")
    return place / "view" / "index.html", place / "single.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same odd traces as a folder and as one file."""
    return dict(zip(("folder", "single"), make_pages(tmp_path_factory.mktemp("pages"), make_odd_traces()), strict=True))


@pytest.mark.parametrize("form", ["folder", "single"])
def test_hostile_text_is_shown_and_does_nothing(
    pages: dict[str, Path], open_tab: Callable[..., Tab], form: str
) -> None:
    tab = open_tab()
    tab.open(pages[form])
    assert len(tab.texts("tbody tr")) == 6
    assert any("</script><script>" in text for text in tab.texts(".facet label"))
    tab.page.locator("a.title", has_text="</script>").first.click()
    tab.page.wait_for_selector(".step")
    tab.page.evaluate("document.querySelectorAll('#steps details').forEach(d => { d.open = true })")
    shown = tab.page.inner_text("#steps")
    assert shown.count("</script><script>window.hacked=1</script>") > 8
    assert "\u05e9\u05dc\u05d5\u05dd" in shown and "U+202E" in shown and "\x1b" not in shown
    assert tab.texts(".fg1.bold")[0] == "red" and tab.texts("#steps .fg5")[0] == "pink"
    assert tab.texts(".tokens i") == ["1", "2", "3"]
    assert tab.texts(".tokenfold summary") == ["3 sampled tokens, mean logprob -13.367, after a prompt of 2"]
    assert tab.page.eval_on_selector_all("main img, main svg a, main script", "n => n.length") == 0
    tab.page.keyboard.press("r")
    assert "__proto__" in tab.page.inner_text("dialog")
    tab.page.keyboard.press("Escape")
    tab.page.locator("button", has_text="1 tool").click()
    assert MARKUP[:20] in tab.page.inner_text("dialog")


def put_everything_on_the_screen(tab: Tab) -> None:
    """Open what is folded, until nothing more is."""
    for _ in range(4):
        tab.page.evaluate("document.querySelectorAll('main details:not([open])').forEach(d => { d.open = true })")
        tab.page.evaluate("document.querySelectorAll('main button.more').forEach(b => { if (!b.hidden) b.click() })")
        tab.page.wait_for_timeout(100)


def check_nothing_is_markup(tab: Tab) -> None:
    """Elements that a text of a record would have made, and links that lead out of the page."""
    kinds = ("img", "script", "iframe", "object", "embed", "link", "style", "form", "base", "meta", "svg a")
    inside = ", ".join(f"{part} {kind}" for part in ("main", "dialog") for kind in kinds)
    assert tab.page.eval_on_selector_all(inside, "n => n.map(e => e.outerHTML.slice(0, 200))") == []
    links = tab.page.eval_on_selector_all("a[href], area[href]", "n => n.map(a => a.getAttribute('href'))")
    assert [link for link in links if not link.startswith("#")] == []
    handlers = "n => n.filter(e => e.getAttributeNames().some(a => a.startsWith('on'))).length"
    assert tab.page.eval_on_selector_all("main *, dialog *", handlers) == 0


@pytest.mark.parametrize("form", [0, 1])
def test_no_field_of_a_trace_can_run(tmp_path: Path, open_tab: Callable[..., Tab], form: int) -> None:
    """Every text of the record is hostile, by its schema: all parts of the page, all dialogs, all that is folded."""
    page = make_pages(tmp_path, [make_filled_trace(key, success=key == "a") for key in "ab"])[form]
    tab = open_tab()
    for place in ("", "#=runs"):
        tab.open(page, place)
        put_everything_on_the_screen(tab)
        check_nothing_is_markup(tab)
    tab.open(page)
    tab.page.locator("a.title").first.click()
    tab.page.wait_for_selector(".step")
    put_everything_on_the_screen(tab)
    check_nothing_is_markup(tab)
    shown = tab.page.text_content("main") or ""
    for name in (
        "task.statement",
        "messages.reasoning",
        "messages.tool_calls.name",
        "outcome.error.message",
        "parent.key",
    ):
        assert f"«.{name}»" in shown, name
    tab.page.locator("button", has_text="1 tool").click()
    check_nothing_is_markup(tab)
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("dialog", state="detached")
    tab.page.keyboard.press("r")
    for _ in range(9):
        tab.page.evaluate("document.querySelector('dialog button.more')?.click()")
    check_nothing_is_markup(tab)
    raw = tab.page.text_content("dialog") or ""
    assert [name for name in list_names(Trace) if f"«{name}»" not in raw] == [".id"]  # which the store computes


def test_no_field_of_a_dataset_or_of_predictions_can_run(
    dataset_page: Path, tmp_path: Path, open_tab: Callable[..., Tab]
) -> None:
    """The manifest, the header and the rows of predictions, and what `score` and `replay` wrote."""
    dataset = tmp_path / "dataset"
    shutil.copytree(dataset_page.parent.parent / "dataset", dataset)
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    counts = {name: {make_text(f"{name}.key"): 1} for name in ("sources", "licenses", "families", "strengths")}
    poisoned = {name: value if name == "configs" else poison(value, name) for name, value in manifest.items()}
    (dataset / "manifest.json").write_text(json.dumps(poisoned | counts))
    eval_rows = [json.loads(line) for line in (dataset_page.parent.parent / "a.jsonl").read_text().splitlines()]
    place = {"key", "step", "rank"}
    rows = [fill(Prediction) | {name: row[name] for name in place & row.keys()} for row in eval_rows]
    lines = [fill(PredictionsHeader), *rows]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, record in {"score": ScoreReport, "replay": ReplayReport}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(fill(record)))
    files = [tmp_path / name for name in ("p.jsonl", "score.json", "replay.json")]
    with pytest.warns(ForetraceWarning, match="was made for another dataset"):
        foretrace.view([dataset, *files], out=tmp_path / "v")
    tab = open_tab()
    for part in ("", "proposer", "verifier", "eval"):
        tab.open(tmp_path / "v/index.html", f"#={part}")
        tab.page.evaluate("document.querySelectorAll('.datarow').forEach((d, n) => { d.open = n < 5 })")
        tab.page.wait_for_timeout(100)
        put_everything_on_the_screen(tab)
        check_nothing_is_markup(tab)
        assert "<img src=" in (tab.page.text_content("main") or "")


def test_the_policy_holds_without_the_script(pages: dict[str, Path], browser: Any) -> None:
    """What would happen if markup did get in: nothing runs, and no request arrives."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Counted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        urlopen(f"{address}/counted").close()
        for page in pages.values():
            tab = Tab(browser)
            tab.open(page)
            markup = MARKUP.replace("http://example.invalid", address)
            tab.page.evaluate("m => { document.querySelector('main').innerHTML = m }", markup)
            tab.page.evaluate("a => fetch(a).catch(() => null)", address)
            assert tab.page.evaluate("window.hacked") is None
            assert "Content Security Policy" in " ".join(tab.wrong)
            tab.context.close()
        server.shutdown()
    assert _Counted.paths == ["/counted"]


class _Counted(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_a_trace_of_1000_steps_opens_in_two_seconds(pages: dict[str, Path], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(pages["folder"])
    with tab.work("a trace of 1,000 steps") as took:
        tab.page.locator("a.title", has_text="at length").click()
        tab.page.wait_for_selector("#m1999")
    assert took[0] < 2
    assert len(tab.texts(".step")) == 1000
    assert "a perfect prefetch hides" in tab.page.inner_text("figcaption")


def test_filters_search_and_sorting(pages: dict[str, Path], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(pages["folder"])
    tab.page.get_by_label("failed").first.check()
    assert len(tab.texts("tbody tr")) == 1
    tab.page.get_by_role("button", name="clear all").click()
    assert len(tab.texts("tbody tr")) == 6
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("length")
    tab.wait_for_rows(1)
    tab.page.keyboard.press("Escape")
    tab.page.get_by_role("button", name="clear all").click()
    tab.page.get_by_role("button", name="steps", exact=True).click()
    assert "Do it, at length." in tab.texts("tbody tr")[0]


def test_all_texts_are_searched_where_that_is_ticked(
    tmp_path: Path, dataset_page: Path, open_tab: Callable[..., Tab]
) -> None:
    task = Message(role="user", author="user", content="What was it?")
    said = [Message(role="assistant", author="model", content=f"It was the {animal}.") for animal in ("Otter", "newt")]
    tab = open_tab()
    for page in make_pages(tmp_path, [make_trace((task, message), f"k{n}") for n, message in enumerate(said)]):
        tab.open(page)
        tab.page.get_by_label("search traces").fill("the OTTER")
        tab.wait_for("#results .empty")
        tab.page.get_by_label("in all texts").check()
        tab.wait_for_rows(1)
        assert tab.texts("td .key") == ["k0"]
        tab.page.get_by_label("search traces").fill("beaver")
        tab.wait_for("#results .empty")
    tab.open(dataset_page, "#proposer")
    tab.page.get_by_label("search rows").fill("ask_clarification: asks the user")  # in every prompt
    tab.wait_for(".part-page .empty")
    tab.page.get_by_label("in all texts").check()
    tab.wait_for(".datarow")
    assert tab.page.evaluate("document.activeElement.dataset.control") == "deep"


def test_a_long_task_leaves_the_steps_in_sight(tmp_path: Path, open_tab: Callable[..., Tab]) -> None:
    issue = Message(
        role="user", author="user", content="It breaks.\n\n" + "A long line of an issue, with details. " * 400
    )
    said = Message(role="assistant", author="model", content="Mended.")
    tab = open_tab()
    tab.open(make_pages(tmp_path, [make_trace((issue, said), "k")])[0], "#k")
    step = tab.page.locator(".step").bounding_box()
    assert step is not None and step["y"] < 800
    tab.page.get_by_role("button", name="show").click()
    assert tab.page.inner_text(".user").count("details.") == 400


def test_keys_and_links(pages: dict[str, Path], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(pages["folder"], "#long/41")
    assert tab.page.get_attribute(".here", "id") == "m41"
    for key, place in {"j": "m43", "k": "m41"}.items():
        tab.page.keyboard.press(key)
        assert tab.page.get_attribute(".here", "id") == place
    assert tab.page.url.endswith("#long/41")
    tab.page.locator("#m41").get_by_role("link", name="done").click()  # at the call that started it
    assert tab.page.wait_for_selector("mark.redacted").inner_text() == "<SECRET:key-1>"
    tab.page.get_by_role("link", name="long", exact=True).click()
    tab.page.wait_for_selector("#m41")
    tab.page.keyboard.press("?")
    assert "next / previous" in tab.page.inner_text("dialog")
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("u")
    tab.page.wait_for_selector("#results table")
    tab.page.keyboard.press("j")
    assert tab.page.evaluate("document.activeElement.className") == "title"
    tab.open(pages["folder"], "#hostile/nothing")
    assert "There is no trace" in tab.page.inner_text("main")


@pytest.mark.parametrize("width", list(WIDTHS))
def test_the_list_is_put_in_order_without_its_columns(tmp_path: Path, open_tab: Callable[..., Tab], width: str) -> None:
    """By date, and back to how it is stored; a phone shows no heads of columns."""
    days = {"a": "2026-01-02", "b": None, "c": "2026-01-03", "d": "2026-01-01"}
    said = [Message(role="assistant", author="model", content="hi", started=day) for day in days.values()]
    tab = open_tab(*WIDTHS[width])
    tab.open(make_pages(tmp_path, [make_trace((m,), key) for key, m in zip(days, said, strict=True)])[0])
    stored = tab.texts("td .key")
    tab.page.get_by_label("order").select_option("started")
    assert tab.texts("td .key") == ["c", "a", "d", "b"]
    tab.page.get_by_role("button", name="falling").click()
    assert tab.texts("td .key") == ["d", "a", "c", "b"]
    tab.page.get_by_label("order").select_option("as stored")
    assert tab.texts("td .key") == stored
    tab.keep(f"order-{width}")


def test_loss_weights_are_shown(tmp_path: Path, open_tab: Callable[..., Tab]) -> None:
    weights = ({"train": False}, {"train": True, "train_weight": 0.5}, {"train_weight": 0.0}, {})
    said = tuple(Message(role="assistant", author="model", content="hi", **given) for given in weights)
    tab = open_tab()
    tab.open(make_pages(tmp_path, [make_trace(said)])[0], "#k")
    names = ("not trained on", "weight 0.5", "weight 0")
    found = [[name for name in names if name in head] for head in tab.texts(".step header")]
    assert found == [["not trained on"], ["weight 0.5", "weight 0"], ["weight 0"], []]


def test_the_focus_stays_on_a_filter(pages: dict[str, Path], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(pages["folder"])
    for control in ("outcome 2", "sort steps", "share 2"):
        tab.page.locator(f'[data-control="{control}"]').press("Space")
        assert tab.page.evaluate("document.activeElement.dataset.control") == control
    assert "a key" not in tab.page.inner_text("tbody") and "Do it, at length." in tab.page.inner_text("tbody")


def test_a_list_of_100000_traces_opens_in_two_seconds(
    tmp_path: Path, open_tab: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list alone: its traces are one, under 100,000 keys, and looked at once."""
    model = make_long_trace(4)
    for name in ("collect_evidence", "time_steps"):
        found = getattr(traces_page, name)(model)
        monkeypatch.setattr(traces_page, name, lambda _, found=found: found)
    monkeypatch.setattr(traces_page, "flag_trace", lambda *_: [])
    monkeypatch.setattr(traces_page, "describe_trace", lambda *_: {})
    monkeypatch.setattr(traces_page, "unpack_record", lambda trace, packed: trace)
    (tmp_path / "traces").mkdir()

    class Store:
        folder = tmp_path / "traces"

        def read_columns(self, _: str) -> range:
            return range(100_000)

        def read_records(self) -> Iterator[tuple[str, Trace, None]]:
            keys = (f"s@1/train:row-{n:08d}" for n in range(100_000))
            return ((key, msgspec.structs.replace(model, key=key), None) for key in keys)

    monkeypatch.setattr("foretrace.report.view.TraceStore", lambda _: Store())
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    tab = open_tab()
    tab.page.goto("about:blank")
    with tab.work("a list of 100,000 traces") as took:
        tab.open(tmp_path / "v" / "index.html")
        tab.page.wait_for_selector(".count:has-text('100,000 traces'):not(:has-text('loading'))")
    assert took[0] < 2
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("00099999")
    tab.wait_for_rows(1)


@pytest.mark.parametrize("width", list(WIDTHS))
def test_two_runs_side_by_side(tmp_path: Path, open_tab: Callable[..., Tab], width: str) -> None:
    for name, good in (("before", False), ("after", True)):
        judged = Outcome(success=good, reward=float(good))
        write_traces([msgspec.structs.replace(make_long_trace(3), outcome=judged)], tmp_path / name)
    foretrace.view([tmp_path / "before", tmp_path / "after"], out=tmp_path / "v")
    tab = open_tab(*WIDTHS[width])
    tab.open(tmp_path / "v" / "index.html", "#=runs")
    assert tab.texts(".problems .rate") == ["0.0%", "100%"]
    assert [text.split("\u00b7")[0].strip() for text in tab.texts(".runs tbody th")] == ["after", "before"]
    tab.keep(f"runs-{width}")
    for name, mark in (("before", "failed"), ("after", "success")):  # one key, in both folders
        tab.open(tmp_path / "v" / "index.html", f"#{name}:long/3")
        assert mark in tab.page.inner_text(".head") and tab.page.get_attribute(".here", "id") == "m3"


@pytest.fixture(scope="module")
def dataset_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dataset")
    dataset = build_hostile_dataset(place)
    for name, wrong in (("a", 4), ("b", 3)):
        write_guesses(dataset, place / f"{name}.jsonl", wrong=wrong)
    results = write_results(dataset, place / "a.jsonl", place)
    foretrace.view([dataset, place / "a.jsonl", place / "b.jsonl", *results], out=place / "view")
    return place / "view" / "index.html"


def test_a_dataset_its_rows_and_its_predictions(dataset_page: Path, open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(dataset_page)
    assert "groups_disjoint" in tab.page.inner_text("main")
    assert len(tab.texts(".confusion")) == 2 and len(tab.texts(".reliability")) == 2
    assert [text for text in tab.texts(".panel h2") if text in ("Score", "Replay")] == ["Score", "Replay"]
    assert "time saved" in tab.page.inner_text("main")
    assert tab.page.eval_on_selector_all("path.curve", "n => n.length") == 4, "two reliabilities, a score, a replay"
    found = tab.page.evaluate("foretrace.meta.predictions.map((p) => p.found)")
    for chart, guesses in zip(tab.page.locator(".reliability").all(), found, strict=True):  # each point has its number
        counts = [text for text in chart.locator(".tick").all_text_contents() if text.isdigit()]
        assert sum(map(int, counts)) == guesses and len(counts) == chart.locator("circle").count()
    button = tab.page.locator(".confusion").first.get_by_role("button").filter(has_not_text="0").last
    count = int(button.inner_text())
    button.click()
    tab.wait_for("#rows")
    assert len(tab.texts(".datarow")) == count  # a cell lists its rows
    tab.open(dataset_page, "#eval")
    tab.page.locator("select[aria-label=order]").select_option("most sure and wrong: a.jsonl")
    assert tab.texts(".datarow")[0].count("\u2715") >= 1
    lines = tab.page.locator(".datarow").first.locator(".guessline").all_inner_texts()
    assert [line.split()[0] for line in lines] == ["a.jsonl", "b.jsonl"]
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.wait_for(".datarow[open] .answer")
    tab.page.evaluate("document.querySelectorAll('.datarow[open] details').forEach(d => { d.open = true })")
    assert tab.page.inner_text(".datarow[open]").count("</script><script>window.hacked=1</script>") > 2
    tab.open(dataset_page, "#=proposer")
    tab.page.get_by_label("action", exact=True).select_option(index=1)
    assert len(set(tab.texts(".datarow summary > b"))) == 1
    tab.open(dataset_page, "#=eval")
    orders = tab.texts("select[aria-label=order] option")
    assert {"most sure and wrong: a.jsonl", "least sure: b.jsonl", "files disagree"} <= set(orders)
    tab.page.locator("select[aria-label=order]").select_option("most sure and wrong: b.jsonl")
    first = tab.page.locator(".datarow").first.locator(".guessline").nth(1).locator(".guess").first.inner_text()
    assert first.startswith("\u2715") and "90%" in first
    tab.open(dataset_page, "#=verifier")
    tab.page.locator(".datarow > summary").first.click()
    tab.wait_for(".pair")
    assert tab.texts(".pair h2") == ["chosen", "rejected"]


def test_a_dataset_in_one_file_and_the_report_of_its_build(
    dataset_page: Path, tmp_path: Path, open_tab: Callable[..., Tab]
) -> None:
    dataset = dataset_page.parent.parent / "dataset"
    foretrace.view(dataset, single=tmp_path / "dataset.html")
    for page in (tmp_path / "dataset.html", dataset / "report.html"):
        tab = open_tab()
        tab.open(page)
        assert "groups_disjoint" in tab.page.inner_text("main")
        for config in ("proposer", "verifier", "eval"):
            tab.open(page, f"#={config}")
            tab.page.locator(".datarow > summary").first.click()
            tab.wait_for(".datarow[open] .answer, .datarow[open] .pair")
            assert "left out of this file" not in tab.page.inner_text(".datarow[open]")


def test_json_for_reading_has_the_lines_of_its_texts(pages: dict[str, Path], open_tab: Callable[..., Tab]) -> None:
    tab = open_tab()
    tab.open(pages["folder"])
    value = {"a": "x\n  y\n", "b": ["1\n2"], "c": {}, "d": None}
    found = tab.page.evaluate("v => foretrace.writeReadable(v)", value).split("\n")
    text = ["    x", "      y", '    """,']
    listed = ['  "b": [', '    """', "      1", '      2"""', "  ],"]
    assert found == ["{", '  "a": """', *text, *listed, '  "c": {},', '  "d": null', "}"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(WIDTHS))
def test_pages_fit_the_window_and_are_accessible(
    pages: dict[str, Path], dataset_page: Path, open_tab: Callable[..., Tab], width: str, scheme: str
) -> None:
    """Names, headings and contrast, with some of what is folded open."""
    traces = {"list": "", "trace": "#long/3", "child": "#child", "key": "#%3Druns", "runs": "#=runs"}
    traces["hostile"] = "#" + quote(make_hostile_trace().key)
    places = [(pages["folder"], name, place) for name, place in traces.items()]
    places += [(dataset_page, f"dataset-{part or 'overview'}", f"#={part}") for part in ("", "proposer", "eval")]
    tab = open_tab(*WIDTHS[width], scheme)
    for page, name, place in places:
        tab.open(page, place)
        tab.page.evaluate("[...document.querySelectorAll('main details')].slice(0, 9).forEach(d => { d.open = true })")
        tab.page.wait_for_timeout(200)
        tab.keep(f"{name}-{width}-{scheme}")
        found = {check: tab.page.evaluate(script) for check, script in CHECKS.items()}
        assert width == "phone" or not any(found.values()), (place, found)
