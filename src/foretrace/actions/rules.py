"""The rules of the labels: what kind of call each stands for, and what it means; and what each flag means."""

from __future__ import annotations

from typing import NamedTuple

from foretrace.actions.call_facts import DEFAULT_EFFECTS, CallFacts, CallKind
from foretrace.actions.taxonomy import Effect

CORRECTED_RULE = "corrected"
"""Rule of a label that is a person's correction."""


class Rule(NamedTuple):
    """A rule for calls."""

    kind: CallKind
    effect: Effect
    meaning: str


def _read_rules(table: str) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for line in table.strip().splitlines():
        name, spec, meaning = line.split(" ", 2)
        kind_name, _, effect = spec.partition(":")
        kind = CallKind[kind_name.upper()]
        rules[name] = Rule(kind, Effect(effect) if effect else DEFAULT_EFFECTS[kind], meaning)
    return rules


RULES = _read_rules("""
terminal_call terminal It calls a tool that hands in the result and ends the attempt.
terminal_give_up give_up It calls a tool that ends the attempt without a result.
terminal_no_answer give_up It hands in an answer that is empty or says that it does not know.
hand_over handover It calls a tool that hands the user over to a person.
ask_call ask It calls a tool that puts a question to the user.
say_call say It calls a tool that sends text to the user: the text decides.
shell.read read Its shell command shows a file or folder that it names.
shell.search search Its shell command looks for files or text.
shell.compare compare It compares files: a look before the agent's own edits, a check after them.
shell.awk search It runs awk on a file: a search where it names a pattern, else a look at the file.
shell.filter setup Its shell command only changes how output looks.
shell.look search It asks a project tool about the state of things (such as `gh issue view`).
shell.fetch search Its shell command fetches a page or file from the network.
shell.send other:external_write Its shell command sends data to a server.
shell.probe verify It sends a request to a server on the same machine, to see whether that works.
shell.test verify Its shell command runs tests.
shell.module verify It runs a Python module (`python -m`) that checks something.
shell.run verify It runs a script or program of the project.
shell.code verify It runs code given on the command line (such as `node -e`).
shell.lint verify It runs a linter, type checker or formatter: a write where that changes files.
shell.build verify Its shell command builds or compiles.
shell.checksum verify It checks files against their checksums.
shell.package search It asks the package manager: for what is installed, or whether it fits together.
shell.install other:local_write Its shell command installs or removes packages.
shell.redirect write It writes a file by a redirection of the shell.
shell.edit write Its shell command writes a file (such as `tee`, `patch` or a formatter).
shell.sed write It edits a file in place (such as `sed -i`).
shell.move other:local_write It makes, moves, copies or removes files or folders.
shell.service other:sandbox_exec It starts or stops a process or server.
shell.remote other:external_write Its shell command acts on another machine or service.
shell.project other:local_write It runs a project tool that is neither test, build nor look (such as `npm init`).
shell.sql other:unknown It runs SQL from the shell: a search where it only reads, else another call.
shell.environment other:pure_read Its shell command shows the machine or the environment.
shell.version other:pure_read Its shell command shows a version or a help text.
shell.compute other:pure_read Its shell command only computes something.
shell.input other:sandbox_exec It sends keys or text to a program that runs, or waits for it.
shell.interactive other:sandbox_exec It starts an interpreter that waits for input.
shell.setup setup Its shell line only prepares (such as `cd` or `export`).
shell.print setup Its shell line only prints text.
shell.empty other:pure_read Its shell line holds no command.
shell.other other:sandbox_exec Its shell command is in no table.
shell.submit terminal Its shell command hands in the result (`submit`).
shell.final_marker terminal It prints the marker that ends the attempt.
git.diff compare It runs `git diff`: a look before the agent's own edits, a check after them.
git.status compare It runs `git status`: a look before the agent's own edits, a check after them.
git.difftool compare It runs `git difftool`: a look before the agent's own edits, a check after them.
git.show read It shows a commit or file with `git show`.
git.look search It looks something up in the history of git (such as `git log`).
git.apply write It applies a patch with git: a dry run is a check, all else a write.
git.undo undo It takes back changes with git, with nothing known to be failing.
git.bisect verify It looks for a bad commit with `git bisect`.
git.other other:local_write It runs another git command that changes something.
python.exercise verify Its Python code uses the project's code, to see what it does.
python.assert verify Its Python code asserts something or runs tests.
python.unparsed verify It runs Python code that cannot be parsed.
python.write write Its Python code writes a file.
python.files other:local_write Its Python code moves or removes files.
python.source read:sandbox_exec Its Python code shows source code.
python.introspect other:sandbox_exec Its Python code shows versions or what a module holds.
python.sql_change other:local_write Its Python code holds SQL that changes data.
python.query search:sandbox_exec Its Python code looks something up.
python.read read:sandbox_exec Its Python code shows a file.
python.compute other:sandbox_exec Its Python code only computes something.
cell.assert verify Its code cell asserts something or runs tests.
cell.write write Its code cell writes a file, or calls a tool that does.
cell.sql search Its code cell runs SQL that only reads.
cell.sql_change other:local_write Its code cell runs SQL that changes data.
cell.read read Its code cell shows a file, or calls a tool that does.
cell.search search Its code cell calls a tool that looks something up.
cell.verify verify Its code cell calls a tool that runs a check.
cell.other other:unknown Its code cell calls a tool that acts or computes.
cell.undo undo Its code cell calls a tool that takes back changes.
cell.terminal terminal Its code cell calls a function that hands in the answer.
cell.compute other:sandbox_exec Its code cell computes, and uses no tool that is known.
cell.unparsed other:sandbox_exec It runs a code cell that cannot be parsed.
tool.view read It shows a file or folder with an editor.
tool.create write It makes a file with an editor.
tool.str_replace write It replaces text in a file with an editor.
tool.append write It adds text at the end of a file with an editor.
tool.undo undo It takes back its last edit with an editor.
tool.editor other:unknown It calls an editor with a command that is not known.
tool.patch write It applies a patch.
tool.navigate other:external_write It opens a page in a browser.
tool.exec other:sandbox_exec It runs a program that calls none of the agent's tools.
tool.sql search It sends SQL that only reads.
tool.sql_change other:external_write It sends SQL that changes data.
tool.read_verb search The name of its tool begins with a verb of looking up (such as `get_order`).
tool.read_word search A word in the name of its tool says that it returns data (such as `flight_details`).
tool.read_words read The name of its tool says that it shows a file or folder (such as `read_text_file`).
tool.write_words write The name of its tool says that it writes a file (such as `update_document`).
tool.change_verb other:external_write The name of its tool has a verb of change (such as `cancel_order`).
tool.compute_verb other:unknown The name of its tool has a verb of computing (such as `convert_units`).
tool.api search:unknown It calls a marketplace's API whose name says nothing: nearly all fetch data.
tool.described other:unknown The name of its tool says nothing, its description does.
tool.unknown other:unknown Neither the name nor the description of its tool says what it does.
""")
"""Rule -> its usual kind and effect (after a colon, where it is not that of the kind), and what it means."""

_OTHER_RULES = """
text.answer It makes no call, and its text neither asks for something nor refuses: it answers.
text.ask Its text asks the user for something that the agent needs.
text.blocked Its text declines, gives up, or hands the user over to somebody else.
repair.failing_target It writes a file that the agent had written before a check failed.
repair.doubtful_target It edits a file that the agent had edited before a check that showed no clear result.
repair.refused_write It tries a write again that was refused.
repair.reissued It sends a call again that ended in an error.
repair.failing_definition It defines a function or class anew whose earlier definition was seen to fail.
repair.failing_code It tests other code after a test of the agent's earlier code failed.
repair.wrong_answer It runs code after the agent's answer was rejected.
repair.undo It takes back changes of the agent's while something was failing.
repair.chat_code It shows code in chat after a report that the agent's earlier code failed.
nonstep.demonstration It is part of an example that was shown to the agent.
nonstep.limit It is a note that the run ended on a limit.
nonstep.reasoning It holds only thinking.
nonstep.preamble It is the beginning of a reply that goes on in the next message.
nonstep.acknowledgement It is a short opening word before the work begins.
nonstep.prompted The environment answered its words by asking for the next thing.
nonstep.lost It is empty: its call was lost before it came to us.
nonstep.internal_error A rule failed on it.
corrected A person corrected this label.
"""
OTHER_MEANINGS = {name: text for name, _, text in (line.partition(" ") for line in _OTHER_RULES.strip().splitlines())}
"""Rule of messages as a whole -> what it means."""
_LISTED_TOOLS = {
    CallKind.READ: "shows a file or folder",
    CallKind.SEARCH: "looks something up",
    CallKind.WRITE: "writes a file",
    CallKind.UNDO: "takes back changes",
    CallKind.VERIFY: "runs a check",
    CallKind.OTHER: "acts, plans or computes",
}


def make_facts(rule: str, kind: CallKind | None = None, effect: Effect | None = None, /, **facts: object) -> CallFacts:
    """Make the facts of a call by its rule: one of `RULES`, or the `tool.NAME` of a listed tool, with its kind. `kind`
    and `effect` are given where they are not the rule's usual ones; `facts` are the other fields."""
    if kind is None:
        kind, effect = RULES[rule].kind, effect or RULES[rule].effect
    return CallFacts(kind=kind, rule=rule, effect=effect or DEFAULT_EFFECTS[kind], **facts)  # type: ignore[arg-type]


def find_rule_meaning(rule: str) -> str:
    """What a rule means, in one sentence; a KeyError if there is no such rule."""
    from foretrace.actions.tool_tables import TOOL_KINDS

    if rule in RULES:
        return RULES[rule].meaning
    if rule in OTHER_MEANINGS:
        return OTHER_MEANINGS[rule]
    tool = rule.removeprefix("tool.")
    return f"It calls `{tool}`, which the table of tools lists: it {_LISTED_TOOLS[TOOL_KINDS[tool][0]]}."
