"""Labels of whole traces: precedence, repair, messages without calls, messages that are not steps."""

from __future__ import annotations

import json
import warnings

import msgspec
import pytest

from actions.traces import (
    BOOM,
    DONE,
    OK,
    PASSED,
    REFUSED,
    actions,
    change,
    do,
    labels,
    make,
    notice,
    say,
    seen,
    sh,
    trace,
    user,
)
from foretrace.actions.call_facts import CallKind
from foretrace.actions.label_steps import label_trace
from foretrace.actions.observation_rules import ObservedResult, classify_observation
from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.core.trace import Message, ToolCall, ToolSpec

RUN = sh("cd /r && python probe.py")

REPAIRS = {
    "one line edits what was written before a check failed, and checks it": (
        [sh("echo 'x = 1' > a.py && python a.py"), BOOM, sh("sed -i s/1/2/ a.py && python a.py"), BOOM],
        ["verifier", "repair"],
    ),
    "one line edits other code after a failing check, and checks it": (
        [sh("echo 'x = 1' > a.py && python a.py"), BOOM, sh("sed -i s/1/2/ b.py && python a.py"), OK],
        ["verifier", "verifier"],
    ),
    "first source edit after the reported bug was shown":
        ([make("/r/probe.py"), OK, RUN, BOOM, change("/r/a.py"), OK], ["file_write", "verifier", "file_write"]),
    "second edit after the check still failed, until it passes": (
        [
            change("/r/a.py"), OK, RUN, BOOM, change("/r/a.py"), OK, change("/r/a.py"), OK, sh("pytest"), PASSED,
            change("/r/a.py"), OK,
        ],
        ["file_write", "verifier", "repair", "repair", "verifier", "file_write"],
    ),
    "own script that failed":
        ([make("/r/probe.py"), OK, RUN, BOOM, change("/r/probe.py"), OK], ["file_write", "verifier", "repair"]),
    "a new file after a failure":
        ([change("/r/a.py"), OK, RUN, BOOM, make("/r/b.py"), OK], ["file_write", "verifier", "file_write"]),
    "a script that fails softly, with the error last": (
        [change("/r/a.py"), OK, RUN, seen("first: ok\nError: KeyError: 'id'\n"), change("/r/a.py"), OK],
        ["file_write", "verifier", "repair"],
    ),
    "a script that shows an expected error and then success": (
        [change("/r/a.py"), OK, RUN, seen("Error: as planned\nupdate successful"), change("/r/a.py"), OK],
        ["file_write", "verifier", "file_write"],
    ),
    "failing cases among passing ones": (
        [change("/r/a.py"), OK, RUN, seen("one ✓ PASS\ntwo ✗ FAIL\nthree ✓ PASS"), change("/r/a.py"), OK],
        ["file_write", "verifier", "repair"],
    ),
    "edited again after a run that says nothing": (
        [change("/r/a.py"), OK, RUN, seen("head: 3\ntail: None"), change("/r/a.py"), OK],
        ["file_write", "verifier", "repair"],
    ),
    "the own script extended after a run that says nothing": (
        [make("/r/probe.py"), OK, RUN, seen("head: 3"), change("/r/probe.py"), OK],
        ["file_write", "verifier", "file_write"],
    ),
    "a refused edit": (
        [change("/r/a.py"), REFUSED, change("/r/a.py", "aa"), OK, change("/r/a.py", "c"), OK],
        ["file_write", "repair", "file_write"],
    ),
    "a refused edit is not yet a write":
        ([change("/r/a.py"), REFUSED, RUN, BOOM, change("/r/b.py"), OK], ["file_write", "verifier", "file_write"]),
    "sed that failed": (
        [
            sh("sed -i 's/(/' a.py"), seen("<returncode>1</returncode>\nsed: -e expression #1"),
            sh("sed -i 's/x/y/' a.py"),
        ],
        ["file_write", "repair"],
    ),
    "the same file by a relative name": (
        [change("/r/pkg/a.py"), OK, RUN, BOOM, sh("sed -i 's/x/y/' pkg/a.py"), DONE],
        ["file_write", "verifier", "repair"],
    ),
    "an edit of the open file that the editor refused": (
        [
            do("open", path="a.py"), seen("[File: a.py]\n(Open file: /r/a.py)"),
            do("edit", line="1:1", replacement_text="x"),
            seen("Your proposed edit has introduced new syntax error(s).\n(Open file: /r/a.py)"),
            do("edit", line="1:1", replacement_text=" x"), seen("File updated.\n(Open file: /r/a.py)"),
        ],
        ["file_read", "file_write", "repair"],
    ),
    "undo": (
        [change("/r/a.py"), OK, do("str_replace_editor", command="undo_edit", path="/r/a.py")],
        ["file_write", "repair"],
    ),
    "git checkout after a failure": (
        [change("/r/a.py"), OK, sh("pytest"), seen("1 failed, 2 passed"), sh("git checkout -- a.py")],
        ["file_write", "verifier", "repair"],
    ),
    "git checkout without one": ([change("/r/a.py"), OK, sh("git checkout -- a.py")], ["file_write", "tool_call"]),
    "a mutating call with other arguments": (
        [
            do("book_room", day="1", card="a"), seen("Error: card refused"), do("book_room", day="1", card="b"),
            seen("booked"), do("book_room", day="2", card="b"),
        ],
        ["tool_call", "repair", "tool_call"],
    ),
    "a failed lookup":
        ([do("get_room", id="a"), seen("Error: not found"), do("get_room", id="b")], ["retrieval", "retrieval"]),
    "a code cell": (
        [
            do("python", code="rows = load(path)\nprint(rows[3].name)"), BOOM,
            do("python", code="rows = load(path)\nprint(rows[2].name)"), seen("x"),
            do("python", code="rows = load(path)\nprint(rows[1].name)"),
        ],
        ["tool_call", "repair", "tool_call"],
    ),
    "another question after a failed cell": (
        [
            do("python", code="conn.execute('SELECT last_seen FROM people WHERE name = 1')"),
            seen("OperationalError: no column"), do("python", code="conn.execute('PRAGMA table_info(people)')"),
            seen("name"), do("python", code="conn.execute('SELECT seen FROM people WHERE name = 1')"),
        ],
        ["retrieval", "retrieval", "repair"],
    ),
    "a test of other code after one that failed": (
        [do("run_tests", code="a"), seen("1 failed"), do("run_tests", code="a"), BOOM, do("run_tests", code="b")],
        ["verifier", "verifier", "repair"],
    ),
    "an answer that was wrong": (
        [do("solution", answer="3"), seen("Your answer is wrong."), do("python", code="print(2 + 2)")],
        ["final_answer", "repair"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPAIRS)
def test_repair(name: str) -> None:
    messages, expected = REPAIRS[name]
    assert actions(user("task"), *messages) == expected


def test_words_never_decide_when_there_is_a_call() -> None:
    text = "I cannot do this. Could you tell me which one? Let me fix and verify it.\nFinal Answer: 3"
    assert actions(user("task"), sh("ls", text), seen("a"), sh("grep x a", text)) == ["file_read", "retrieval"]


def test_parallel_calls_take_the_highest_kind() -> None:
    calls = [("bash", {"command": "grep x a"}), ("str_replace_editor", {"command": "view", "path": "/a"})]
    made = tuple(ToolCall(name=name, arguments=json.dumps(args)) for name, args in calls)
    two = Message(role="assistant", author="model", tool_calls=made)
    assert actions(user("task"), two) == ["retrieval"]
    three = Message(role="assistant", author="model", tool_calls=(*made, ToolCall(name="submit")))
    assert actions(user("task"), three) == ["final_answer"]


def test_git_diff_is_a_check_only_after_own_edits() -> None:
    assert actions(user("t"), sh("git diff"), DONE, change("/r/a.py"), OK, sh("git status")) == [
        "retrieval",
        "file_write",
        "verifier",
    ]


def test_code_with_a_bad_escape_is_labeled_without_a_warning() -> None:
    cell = do("python", code="from cart import total\nassert total('\\d') == 1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert actions(cell) == ["verifier"]


def test_terminal_and_hand_over_calls() -> None:
    assert actions(user("t"), do("submit"), seen("review"), do("submit")) == ["final_answer", "final_answer"]
    assert actions(user("t"), do("Finish", return_type="give_up_and_restart")) == ["BLOCKED"]
    assert actions(user("t"), do("transfer_to_human_agents", summary="x")) == ["BLOCKED"]


def test_a_description_helps_where_a_name_tells_nothing() -> None:
    plain = trace(user("t"), do("zorb", x=1))
    told = msgspec.structs.replace(plain, tools=(ToolSpec(name="zorb", description="Fetches the peers of a stock."),))
    assert [label_trace(t)[0].action for t in (plain, told)] == [ActionType.TOOL_CALL, ActionType.RETRIEVAL]


def test_effect_version_and_failure() -> None:
    found = labels(user("t"), sh("ls"), seen("a"), change("/r/a.py"), OK, RUN, BOOM, sh("cat a"), seen("Traceback"))
    assert [label.effect for label in found] == [
        Effect.PURE_READ,
        Effect.LOCAL_WRITE,
        Effect.SANDBOX_EXEC,
        Effect.PURE_READ,
    ]
    assert [label.state_version for label in found] == [0, 0, 1, 1]
    assert [label.failed for label in found] == [False, False, True, False]


NO_STEPS = {
    "acknowledgement": (
        [user("rules"), say("Okay, I have read the rules."), user("task"), sh("ls")],
        ["nonstep.acknowledgement", "file_read"],
    ),
    "a short answer is none": ([user("Is 7 prime?"), say("Yes."), user("Thanks")], ["final_answer"]),
    "preamble": ([user("t"), say("Let me look. What is here?"), sh("ls")], ["nonstep.preamble", "file_read"]),
    "long preamble":
        ([user("t"), say("First"), say(""), sh("ls")], ["nonstep.preamble", "nonstep.preamble", "file_read"]),
    "reasoning": ([user("t"), say("", reasoning="hm"), say("It is 3.")], ["nonstep.reasoning", "final_answer"]),
    "lost": ([user("t"), say("None"), seen("{}"), say("It is 3.")], ["nonstep.lost", "final_answer"]),
    "limit": ([user("t"), sh("ls"), seen("a"), say("Exit due to cost limit")], ["file_read", "nonstep.limit"]),
    "prompted": ([user("t"), say("I think."), notice("Go on."), sh("ls")], ["nonstep.prompted", "file_read"]),
    "a person answers behind a notice": (
        [user("t"), say("It is 3."), notice("<context>"), user("And now?"), notice("<date>"), say("It is 4.")],
        ["final_answer", "final_answer"],
    ),
    "demonstration": ([user("t"), say("Done.", author="demo"), sh("ls")], ["nonstep.demonstration", "file_read"]),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_STEPS)
def test_no_step(name: str) -> None:
    messages, expected = NO_STEPS[name]
    assert actions(*messages) == expected


TEXTS = {
    "BLOCKED": [
        "I'm sorry, but this line is only for members.", "Sorry, something broke on my side.",
        "I don't have the opening hours of that branch. I can list the branches.", "I couldn't book the room.",
        "I am currently not capable of reading scans. Do you have any questions about forms?",
        "I can't write that, but I'm happy to draft something kinder.", "\\boxed{[IDK]}",
        "Unfortunately, a sent parcel cannot be recalled.",
        "I'm unable to open new accounts. You can do that in our app.",
        "Opened tickets are final, so it cannot be refunded. Would you like me to transfer you to a colleague?",
        "I will not explain how to pick that lock: it would break our policy.\n\n" + "Please look for help. " * 60,
        "[IDK]", "Thanks for waiting, you are being transferred to a colleague.",
    ],
    "final_answer": [
        "I'm sorry for the mix-up. The parcel left on Monday.", "Sorry, I couldn't find a parcel with that number.",
        "Please note that the office is closed.",
        "Your balance is 12 euros. Is there anything else I can help you with?",
        "The parcel has been sent. If you need anything else, feel free to ask!",
        "There are no open invoices for that customer. Let me know if I should look again.",
        "I changed the parser. In C you cannot do this, but here it is fine.\n\n" + "More detail. " * 80,
        "```python\nprint('Could you confirm?')\n```\nThis prints a question.",
        "Why do buses stop? To let people in.",
    ],
    "ask_clarification": [
        "We cannot book it without a name. Could you please provide your full name?",
        "Please upload the scan first.", "Before I book it I need to know your seat.",
        "I need one more detail.", "Press the green key. Let me know once you have done that.",
        "Hello! This is the clinic's assistant. How can I help you today?",
        "Sure, I can help with that. Could you please provide your customer number?",
        "Before I go on, please confirm the new address.", "I found two bookings.\n\nWhich one do you mean?",
        "Once you confirm, I will cancel it.",
        "I'm sorry, I could not find your account. Please verify the e-mail address.",
        "You can pay by card, but vouchers cannot be combined. Please confirm if you want to use the card.",
        "Welcome! What can I do for you?",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "action"), [(text, action) for action, texts in TEXTS.items() for text in texts])
def test_message_without_a_call(text: str, action: str) -> None:
    assert actions(user("t"), say(text)) == [action]


def test_code_in_chat_after_an_error_is_repair() -> None:
    code = "Here:\n```python\nprint(x)\n```"
    assert actions(user("t"), say(code), user("Execution result:\nNameError: x"), say(code)) == [
        "final_answer",
        "repair",
    ]
    assert actions(user("t"), say(code), user("Now in C, please."), say(code)) == ["final_answer", "final_answer"]


def test_every_assistant_message_gets_one_label_in_order() -> None:
    found = labels(user("t"), say("a"), sh("ls"), seen("x"), say("", author="demo"), say("Done."))
    assert [label.index for label in found] == [1, 2, 4, 5]
    assert labels() == []


REFUSALS = (
    "No replacement was performed. Try again.", "Your edit has introduced new syntax error(s)",
    "Your changes have NOT been applied", "<tool_use_error>no</tool_use_error>", "File has not been read yet",
    "oldString not found in content", "Text to replace was not found", "search string was not found",
    "Found 3 matches of it", "Multiple occurrences of it", "multiple matches of it", "Could not find the text",
    "The text did not match", "It did not appear verbatim", "ERROR: no", "Error: no", "error: no",
    "Invalid `path` parameter", "/app/a.py already exists", "sed: -e expression #1, char 3: unterminated",
    "patch: **** no", "patch failed at line 3", "it does not apply", "Hunk #1 FAILED at 3", "hunk FAILED",
    "Traceback (most recent call last)", "Missing required parameter", "Permission denied", "bash: a/b: No such file",
    "cannot create a/b",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSALS)
def test_an_edit_that_was_refused_failed(text: str) -> None:
    """Short texts decide whether the patterns are asked at all, and must miss none."""
    assert classify_observation(CallKind.WRITE, seen(f"{text}\nand so on")) is ObservedResult.FAILED
