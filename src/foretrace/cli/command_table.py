"""The commands, in the order in which people use them."""

from __future__ import annotations

from foretrace.cli.commands import datasets, demo, evaluation, generate, traces
from foretrace.cli.options import Command

_SERVER = "api_key_env context_length timeout retries model_option"
_GENERATE = (
    f"{_SERVER} seed max_turns top_p top_k feedback hints structure_bonus flagged sandbox workers "
    "preload min_level allow_weak_isolation forms wall_s cpu_s memory_mb max_tokens_total max_time max_cost "
    "price_in price_out redact path part redact_emails redact_addresses speculate_dataset speculate_url "
    "speculate_width speculate_top speculate_threshold speculate_max_wasted speculate_max_tokens"
)
_BUILD = (
    "limit max_context_tokens window tokenizer private allow_undecided recipes statistical_gates allow_demo "
    "allow_unread keep_flagged dedup license_allow license_deny decontaminate keep_contaminated corrections mistakes "
    "allow_unchecked redact ray_address"
)
_API = "foretrace.api."

COMMANDS = {
    command.name or "": command
    for command in (
        Command("demo", demo.demo),
        Command(
            "import",
            traces.import_,
            like=f"{_API}traces:import_source",
            without="inputs",
            hidden="revision repo shards engine ray_address redact_emails redact_addresses replace",
            in_stores="out",
        ),
        Command("generate", generate.generate, like=f"{_API}generation:generate", hidden=_GENERATE),
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
            hidden=_BUILD,
            in_stores="out",
        ),
        Command(
            "predict",
            evaluation.predict,
            like=f"{_API}evaluation:predict",
            hidden=f"{_SERVER} logprobs temperature max_tokens concurrency folds times",
        ),
        Command(
            "verify",
            evaluation.verify,
            like=f"{_API}evaluation:verify",
            without="predictions dataset",
            hidden=_SERVER,
        ),
        Command("score", evaluation.score, like="foretrace.evaluation.score:score"),
        Command(
            "replay",
            evaluation.replay,
            like=f"{_API}evaluation:replay",
            hidden="verifier_s",
        ),
        Command(
            "serve",
            evaluation.serve,
            like=f"{_API}serving:serve",
            without="report_ready",
            hidden=f"{_SERVER} tokenizer samples temperature max_tokens",
        ),
        Command("push", datasets.push, like="foretrace.dataset.push:push", without="token"),
        Command("sources", traces.sources),
        Command("doctor", generate.doctor, hidden=f"{_SERVER} max_tokens wall_s cpu_s memory_mb"),
        Command("schema", traces.schema),
    )
}
PROBLEMS = {
    "list": Command("list", generate.list_problems),
    "check": Command("check", generate.check_problems),
}
