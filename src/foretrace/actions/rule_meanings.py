"""What each rule of the labels means, in one sentence."""

from __future__ import annotations

from foretrace.actions.call_facts import CallKind
from foretrace.actions.tool_tables import TOOL_KINDS

CORRECTED_RULE = "corrected"
"""Rule of a label that is a person's correction."""

_MEANINGS = {
    # How an attempt ends, or the turn goes to somebody else.
    "terminal_call": "It calls a tool that hands in the result and ends the attempt.",
    "terminal_give_up": "It calls a tool that ends the attempt without a result.",
    "terminal_no_answer": "It hands in an answer that is empty or says that it does not know.",
    "hand_over": "It calls a tool that hands the user over to a person.",
    "ask_call": "It calls a tool that puts a question to the user.",
    "text.answer": "It makes no call, and its text neither asks for something nor refuses: it answers.",
    "text.ask": "Its text asks the user for something that the agent needs.",
    "text.blocked": "Its text declines, gives up, or hands the user over to somebody else.",
    # Repair.
    "repair.failing_target": "It writes a file that the agent had written before a check failed.",
    "repair.doubtful_target": "It edits a file that the agent had edited before a check that showed no clear result.",
    "repair.refused_write": "It tries a write again that was refused.",
    "repair.reissued": "It sends a call again that ended in an error.",
    "repair.failing_definition": "It defines a function or class anew whose earlier definition was seen to fail.",
    "repair.failing_code": "It tests other code after a test of the agent's earlier code failed.",
    "repair.wrong_answer": "It runs code after the agent's answer was rejected.",
    "repair.undo": "It takes back changes of the agent's while something was failing.",
    "repair.chat_code": "It shows code in chat after a report that the agent's earlier code failed.",
    # Messages that are not steps.
    "nonstep.demonstration": "It is part of an example that was shown to the agent.",
    "nonstep.limit": "It is a note that the run ended on a limit.",
    "nonstep.reasoning": "It holds only thinking.",
    "nonstep.preamble": "It is text that a call of the same turn follows at once.",
    "nonstep.acknowledgement": "It is a short opening word before the work begins.",
    "nonstep.prompted": "The environment answered its words by asking for the next thing.",
    "nonstep.lost": "It is empty: its call was lost before it came to us.",
    "nonstep.internal_error": "A rule failed on it.",
    # Shell: programs.
    "shell.read": "Its shell command shows a file or folder that it names.",
    "shell.search": "Its shell command looks for files or text.",
    "shell.compare": "Its shell command compares files: a look before the agent's own edits, a check after them.",
    "shell.awk": "It runs awk on a file: a search where it names a pattern, else a look at the file.",
    "shell.filter": "Its shell command only changes how output looks.",
    "shell.look": "It asks a project tool about the state of things (such as `gh issue view`).",
    "shell.fetch": "Its shell command fetches a page or file from the network.",
    "shell.send": "Its shell command sends data to a server.",
    "shell.probe": "It sends a request to a server on the same machine, to see whether that works.",
    "shell.test": "Its shell command runs tests.",
    "shell.module": "It runs a Python module (`python -m`) that checks something.",
    "shell.run": "It runs a script or program of the project.",
    "shell.code": "It runs code given on the command line (such as `node -e`).",
    "shell.lint": "It runs a linter, type checker or formatter: a write where that changes files, else a check.",
    "shell.build": "Its shell command builds or compiles.",
    "shell.checksum": "It checks files against their checksums.",
    "shell.package": "It asks the package manager: for what is installed, or whether it fits together.",
    "shell.install": "Its shell command installs or removes packages.",
    "shell.redirect": "It writes a file by a redirection of the shell.",
    "shell.edit": "Its shell command writes a file (such as `tee`, `patch` or a formatter).",
    "shell.sed": "It edits a file in place with sed, perl or awk.",
    "shell.move": "It makes, moves, copies or removes files or folders.",
    "shell.service": "It starts or stops a process or server.",
    "shell.remote": "Its shell command acts on another machine or service.",
    "shell.project": "It runs a project tool that is neither test, build nor look (such as `npm init`).",
    "shell.sql": "It runs SQL from the shell: a search where it only reads, else another call.",
    "shell.environment": "Its shell command shows the machine or the environment.",
    "shell.version": "Its shell command shows a version or a help text.",
    "shell.compute": "Its shell command only computes something.",
    "shell.input": "It sends keys or text to a program that runs, or waits for it.",
    "shell.interactive": "It starts an interpreter that waits for input.",
    "shell.setup": "Its shell line only prepares (such as `cd` or `export`).",
    "shell.print": "Its shell line only prints text.",
    "shell.empty": "Its shell line holds no command.",
    "shell.other": "Its shell command is in no table.",
    "shell.submit": "Its shell command hands in the result (`submit`).",
    "shell.final_marker": "It prints the marker that ends the attempt.",
    # Git.
    "git.diff": "It compares with `git diff`: a look before the agent's own edits, a check after them.",
    "git.status": "It runs `git status`: a look before the agent's own edits, a check after them.",
    "git.difftool": "It compares with `git difftool`: a look before the agent's own edits, a check after them.",
    "git.show": "It shows a commit or file with `git show`.",
    "git.look": "It looks something up in the history of git (such as `git log`).",
    "git.apply": "It applies a patch with git: a dry run is a check, all else a write.",
    "git.undo": "It takes back changes with git, with nothing known to be failing.",
    "git.bisect": "It looks for a bad commit with `git bisect`.",
    "git.other": "It runs another git command that changes something.",
    # Python code in a shell.
    "python.exercise": "Its Python code uses the project's code, to see what it does.",
    "python.assert": "Its Python code asserts something or runs tests.",
    "python.unparsed": "It runs Python code that cannot be parsed.",
    "python.write": "Its Python code writes a file.",
    "python.files": "Its Python code moves or removes files.",
    "python.source": "Its Python code shows source code.",
    "python.introspect": "Its Python code shows versions or what a module holds.",
    "python.sql_change": "Its Python code holds SQL that changes data.",
    "python.query": "Its Python code looks something up.",
    "python.read": "Its Python code shows a file.",
    "python.compute": "Its Python code only computes something.",
    # Code cells.
    "cell.assert": "Its code cell asserts something or runs tests.",
    "cell.write": "Its code cell writes a file, or calls a tool that does.",
    "cell.sql": "Its code cell runs SQL that only reads.",
    "cell.sql_change": "Its code cell runs SQL that changes data.",
    "cell.read": "Its code cell shows a file, or calls a tool that does.",
    "cell.search": "Its code cell calls a tool that looks something up.",
    "cell.verify": "Its code cell calls a tool that runs a check.",
    "cell.other": "Its code cell calls a tool that acts or computes.",
    "cell.undo": "Its code cell calls a tool that takes back changes.",
    "cell.terminal": "Its code cell calls a function that hands in the answer.",
    "cell.compute": "Its code cell computes, and uses no tool that is known.",
    "cell.unparsed": "It runs a code cell that cannot be parsed.",
    # Tools by their names.
    "tool.view": "It shows a file or folder with an editor.",
    "tool.create": "It makes a file with an editor.",
    "tool.str_replace": "It replaces text in a file with an editor.",
    "tool.append": "It adds text at the end of a file with an editor.",
    "tool.undo": "It takes back its last edit with an editor.",
    "tool.editor": "It calls an editor with a command that is not known.",
    "tool.patch": "It applies a patch.",
    "tool.navigate": "It opens a page in a browser.",
    "tool.exec": "It runs a program that calls none of the agent's tools.",
    "tool.sql": "It sends SQL that only reads.",
    "tool.sql_change": "It sends SQL that changes data.",
    "tool.read_verb": "The name of its tool begins with a verb of looking up (such as `get_order`).",
    "tool.read_word": "A word in the name of its tool says that it returns data (such as `flight_details`).",
    "tool.read_words": "The name of its tool says that it shows a file or folder (such as `read_text_file`).",
    "tool.write_words": "The name of its tool says that it writes a file (such as `update_document`).",
    "tool.change_verb": "The name of its tool has a verb of change (such as `cancel_order`).",
    "tool.compute_verb": "The name of its tool has a verb of computing (such as `convert_units`).",
    "tool.api": "It calls an API of a marketplace whose name says nothing: nearly all of them fetch data.",
    "tool.described": "The name of its tool says nothing, its description does.",
    "tool.unknown": "Neither the name nor the description of its tool says what it does.",
    CORRECTED_RULE: "A person corrected this label.",
}
_LISTED_TOOLS = {
    CallKind.READ: "shows a file or folder",
    CallKind.SEARCH: "looks something up",
    CallKind.WRITE: "writes a file",
    CallKind.UNDO: "takes back changes",
    CallKind.VERIFY: "runs a check",
    CallKind.OTHER: "acts, plans or computes",
}


def find_rule_meaning(rule: str) -> str:
    """What a rule means, in one sentence.

    Raises:
        KeyError: no such rule.
    """
    if meaning := _MEANINGS.get(rule):
        return meaning
    tool = rule.removeprefix("tool.")
    return f"It calls `{tool}`, which the table of tools lists: it {_LISTED_TOOLS[TOOL_KINDS[tool][0]]}."
