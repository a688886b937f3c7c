"""The work of the command from Python: names or objects and plain paths in, reports out."""

from foretrace.api.datasets import build, push
from foretrace.api.evaluation import ceiling, score
from foretrace.api.generation import MAX_SESSIONS, TerminatedError, generate, run_generate
from foretrace.api.traces import ExportReport, LabelReport, export, import_source, label, label_folder

__all__ = [
    "MAX_SESSIONS",
    "ExportReport",
    "LabelReport",
    "TerminatedError",
    "build",
    "ceiling",
    "export",
    "generate",
    "import_source",
    "label",
    "label_folder",
    "push",
    "run_generate",
    "score",
]
