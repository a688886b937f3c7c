"""The statistical gates of a build: families whose answers can be guessed without the prompt are removed and named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from foretrace.dataset.blind_guessers import Pair, describe_shortcut, find_shortcuts
from foretrace.dataset.exact_gates import Gate
from foretrace.dataset.parquet import TableWriter, read_groups
from foretrace.dataset.recipes.base import Config, Row
from foretrace.dataset.shard_job import MAX_SAMPLED_PAIRS, SampledPair, ShardResult


def make_statistical_gates(sample: Mapping[str, list[SampledPair]], seed: int) -> tuple[list[Gate], list[str]]:
    """One gate for each family and blind guesser, and the families that must go.

    A family with a shortcut does not fail the build: it is removed, and the gate says so.
    """
    families = {
        family: [
            Pair(p.pair, p.group, p.chosen, p.rejected)
            for p in sorted(pairs, key=lambda p: p.place)[:MAX_SAMPLED_PAIRS]
        ]
        for family, pairs in sorted(sample.items())
    }
    gates: list[Gate] = []
    removed: list[str] = []
    for found in find_shortcuts(families, seed=seed):
        figure = {
            "accuracy": found.accuracy,
            "low": found.low,
            "high": found.high,
            "n": found.n_test,
            "pairs": found.n_pairs,
            "groups": found.groups,
        }
        detail = describe_shortcut(found)
        if found.verdict == "fail":
            removed.append(found.family)
        verdict = "removed" if found.verdict == "fail" else found.verdict
        gates.append(
            Gate(name=f"shortcut/{found.family}/{found.guesser}", verdict=verdict, figure=figure, detail=detail)
        )
    removed = sorted(set(removed))
    gone = [g for g in gates if g.verdict == "undecided" and g.name.split("/")[1] in removed]
    return [g for g in gates if g not in gone], removed


def rewrite_without(
    families: Collection[str], built: list[ShardResult], configs: dict[str, Config], folder: Path, seed: int
) -> None:
    """Write the pair files again without some families."""
    for part in built:
        for name in ("verifier", "verifier_unpaired"):
            for split, files in list(part.files.get(name, {}).items()):
                part.files[name][split] = {
                    file: rows for file in files if (rows := _rewrite(folder / file, configs[name], families, seed))
                }
        for family in families:
            part.drops["verifier"][f"{family}_family_removed"] += part.families.pop(family, 0)


def _rewrite(path: Path, config: Config, families: Collection[str], seed: int) -> int:
    partial = path.with_name(f".{path.name}.partial")
    writer = TableWriter(partial, config, seed)
    for group in read_groups(path, config):
        columns = group.values | group.messages
        for values in zip(*(columns[c] for c in config.columns), strict=True):
            row = dict(zip(config.columns, values, strict=True))
            if row["family"] not in families:
                salt = f"{row['family']}:{row['pair']}" + {True: "+", False: "-", None: ""}[row.get("label")]
                writer.add(Row(config.name, row["key"], row["step"], salt, row))
    rows = writer.close()
    path.unlink()
    if rows:
        partial.rename(path)
    return rows
