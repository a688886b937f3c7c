"""Count how often the labels of each rule agree with hand labels, and write src/foretrace/actions/rule_agreement.json.

    python scripts/measure_rule_agreement.py [--sources FOLDER] [--check]

The hand labels of the samples that ship with foretrace are always counted. FOLDER holds more of them:
`gold/dev.jsonl` (rows `{source, trace_id, step_index, gold}`) and `traces/SOURCE/rows.jsonl`; without it the counts of
that set stay as they are. The report says what the confidence is worth: each source is judged by a table that was
counted without it.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from foretrace.actions.confidence import (
    BLIND_AGREEMENT,
    COUNTS,
    NO_STEP,
    TABLE,
    AgreementTable,
    ConfidenceModel,
    add_tables,
)
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.api.traces import import_source
from foretrace.core.store import read_traces
from foretrace.samples import sample_files

ROOT = Path(__file__).resolve().parents[1]
SAMPLES_GOLD = ROOT / "tests/actions/gold/samples.jsonl"
OWN_SOURCES = {
    "swe_smith_tool": "swe_smith",
    "swe_smith_xml": "swe_smith",
    "swe_smith_ticks": "swe_smith",
    "toolbench_v1": "toolbench",
}
"""Sources with an importer of their own; the others are read as `chat`."""
STRENGTHS = (0.5, 1, 2, 3, 4, 6, 8, 12, 20, 40, 80)
_BINS = (0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 1.01)


class JudgedStep(NamedTuple):
    """One hand-labeled step, and what the rules say of it."""

    source: str
    rule: str
    action: str
    agrees: bool


def judge_samples() -> list[JudgedStep]:
    """The hand-labeled steps of the shipped samples."""
    gold = _read_lines(SAMPLES_GOLD)
    with tempfile.TemporaryDirectory() as folder:
        for name, path in sample_files().items():
            import_source(name.split(":")[0], path, out=folder)
        labels = {(trace.key, label.index): label for trace in read_traces(folder) for label in label_trace(trace)}
    return [_judge(f"samples {g['source']}", labels[g["key"], g["message"]], g["action"]) for g in gold]


def judge_sources(folder: Path) -> list[JudgedStep]:
    """The hand-labeled steps of a folder of sources."""
    gold = _read_lines(folder / "gold" / "dev.jsonl")
    steps: list[JudgedStep] = []
    for source in sorted({g["source"] for g in gold}):
        with tempfile.TemporaryDirectory() as traces:
            rows = folder / "traces" / source / "rows.jsonl"
            import_source(OWN_SOURCES.get(source, "chat"), rows, out=traces)
            labels = {
                (trace.provenance.raw_row, trace.messages[label.index].raw_index): label
                for trace in read_traces(traces)
                for label in label_trace(trace)
            }
        for g in gold:
            if g["source"] == source:
                place = int(g["trace_id"].rpartition(":")[2]), g["step_index"]
                steps.append(_judge(source, labels[place], g["gold"]))
    return steps


def _read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _judge(source: str, label: StepLabel, gold: str) -> JudgedStep:
    return JudgedStep(source, label.rule, str(label.action or NO_STEP), label.action == gold)


def count_agreement(steps: Iterable[JudgedStep]) -> dict[str, tuple[int, int]]:
    """Rule and action -> (steps that agree, all steps), sorted."""
    seen, agreed = Counter(), Counter()
    for step in steps:
        seen[f"{step.rule} {step.action}"] += 1
        agreed[f"{step.rule} {step.action}"] += step.agrees
    return {key: (agreed[key], seen[key]) for key in sorted(seen)}


def fit_strength(table: AgreementTable) -> float:
    """The strength of the prior under which the counts are most likely (beta-binomial, around `BLIND_AGREEMENT`)."""

    def log_likelihood(strength: float) -> float:
        a, b = BLIND_AGREEMENT * strength, (1 - BLIND_AGREEMENT) * strength
        return sum(_log_beta(a + agreed, b + seen - agreed) - _log_beta(a, b) for agreed, seen in table.values())

    return max(STRENGTHS, key=log_likelihood)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def judge_left_out(steps: Sequence[JudgedStep]) -> list[tuple[float, bool]]:
    """Of each step, how sure a table is that was counted without its source, and whether the label agrees."""
    judged: list[tuple[float, bool]] = []
    for source in sorted({step.source for step in steps}):
        others = count_agreement(step for step in steps if step.source != source)
        model = ConfidenceModel(others, fit_strength(others))
        judged += [(model.estimate(s.rule, s.action), s.agrees) for s in steps if s.source == source]
    return judged


def report_worth(steps: Sequence[JudgedStep]) -> str:
    """What the confidence says of a source that was not counted, beside one figure for all steps."""
    judged = judge_left_out(steps)
    share = sum(step.agrees for step in steps) / len(steps)
    wrong = [confidence for confidence, agrees in judged if not agrees]
    lines = [f"{len(steps)} steps, {len(wrong)} of them labeled otherwise by hand"]
    for name, pairs in (("by rule", judged), ("one for all", [(share, agrees) for _, agrees in judged])):
        brier = sum((p - y) ** 2 for p, y in pairs) / len(pairs)
        mean = sum(p for p, _ in pairs) / len(pairs)
        lines.append(f"{name:<12} mean {mean:.4f}  Brier {brier:.5f}  ECE {_compute_ece(pairs):.4f}")
    ranked = sorted(confidence for confidence, _ in judged)
    for part in (0.05, 0.1, 0.25):
        limit = ranked[int(len(ranked) * part)]
        chosen = sum(confidence <= limit for confidence in ranked)
        found = sum(confidence <= limit for confidence in wrong)
        lines.append(f"the {chosen} least sure ({chosen / len(ranked):.0%}) hold {found} of {len(wrong)} disagreements")
    return "\n".join(lines)


def _compute_ece(pairs: Sequence[tuple[float, bool]]) -> float:
    """Expected calibration error: the mean distance of confidence and agreement, over bins of confidence."""
    gaps = Counter()
    for p, y in pairs:
        gaps[next(at for at, edge in enumerate(_BINS) if p < edge)] += p - y
    return sum(map(abs, gaps.values())) / len(pairs)


def format_table(samples: AgreementTable, sources: AgreementTable) -> str:
    """The text of rule_agreement.json."""
    parts = [f' "prior_strength": {float(fit_strength(add_tables([samples, sources])))}']
    for name, table in (("samples", samples), ("sources", sources)):
        lines = (f'  "{key}": [{agreed}, {seen}]' for key, (agreed, seen) in table.items())
        parts.append(f' "{name}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Count, report, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the table is stale")
    options = parser.parse_args()
    steps = judge_samples()
    samples, sources = count_agreement(steps), COUNTS.sources
    if options.sources is not None:
        more = judge_sources(options.sources)
        sources = count_agreement(more)
        print(report_worth([*steps, *more]))
    text = format_table(samples, sources)
    if options.check:
        raise SystemExit(0 if text == TABLE.read_text("utf-8") else f"{TABLE}: is stale; run this without --check")
    TABLE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
