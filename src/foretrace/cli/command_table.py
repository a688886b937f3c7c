"""The commands, in the order in which people use them."""

from __future__ import annotations

from foretrace.cli.commands import datasets, demo, evaluation, generate, traces
from foretrace.cli.options import Command

_API = "foretrace.api."
_LIST = (
    Command("demo", demo.demo),
    Command(
        "import",
        traces.import_,
        like=f"{_API}traces:import_source",
        without="inputs",
        shown="out split limit since columns license call_pattern workers redact",
        in_stores="out",
    ),
    Command(
        "generate",
        generate.generate,
        like=f"{_API}generation:generate",
        without="on_failure",
        shown="problems protocol model out base_url limit samples keep concurrency temperature max_tokens speculate",
    ),
    Command("scrub", traces.scrub, like=f"{_API}traces:scrub"),
    Command("label", traces.label, like=f"{_API}traces:label_folder", in_stores="traces out review"),
    Command("show", traces.show),
    Command("view", traces.view, like=f"{_API}traces:view"),
    Command("export", traces.export, like=f"{_API}traces:export"),
    Command("ceiling", evaluation.ceiling, like=f"{_API}evaluation:ceiling"),
    Command("effects", evaluation.effects),
    Command(
        "build",
        datasets.build,
        like=f"{_API}datasets:build",
        without="traces",
        shown="out push target outcomes split seed eval_size weights pairs workers engine overwrite references",
        in_stores="out",
    ),
    Command(
        "predict",
        evaluation.predict,
        like=f"{_API}evaluation:predict",
        shown="out predictor model base_url samples rows k limit seed",
    ),
    Command(
        "verify",
        evaluation.verify,
        like=f"{_API}evaluation:verify",
        without="predictions dataset",
        shown="pairs out model base_url scores concurrency max_tokens allow_other_version",
    ),
    Command("score", evaluation.score, like="foretrace.evaluation.score:score"),
    Command(
        "replay",
        evaluation.replay,
        like=f"{_API}evaluation:replay",
        shown="predictions out guess_latency assume_times threshold ahead top allow seed",
    ),
    Command(
        "serve",
        evaluation.serve,
        like=f"{_API}serving:serve",
        without="report_ready",
        shown="base_url socket k allow seed",
    ),
    Command("push", datasets.push, like="foretrace.dataset.push:push", without="token"),
    Command("sources", traces.sources),
    Command(
        "doctor",
        generate.doctor,
        shown="sandbox workers preload min_level allow_weak_isolation forms interpreter model base_url",
    ),
    Command("schema", traces.schema),
)
COMMANDS = {command.name or "": command for command in _LIST}
PROBLEMS = {
    "list": Command("list", generate.list_problems),
    "check": Command("check", generate.check_problems),
}
