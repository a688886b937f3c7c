"""Tables of tool names, and of words in tool names.

To add a tool, put its name in snake case into `TOOL_KINDS`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.actions.call_facts import CallKind, read_table, split_words
from foretrace.actions.taxonomy import Effect

_SPLIT = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

TOOL_GROUPS = read_table("""
shell: bash execute_bash shell sh zsh terminal cmd console run_terminal_cmd run_command run_shell_command
shell: execute_command exec_command local_shell local_shell_call container_exec bash_command execute_shell run_bash
shell: shell_command powershell run_in_terminal bash_tool shell_exec command_line run_shell os unified_exec
stdin: write_stdin
code_mode: exec
code: python execute_python ipython execute_ipython_cell run_ipython execute run_python code_interpreter python_repl
code: jupyter jupyter_cell run_code execute_code python_interpreter code_execution run_cell python_repl_ast
editor: str_replace_editor str_replace_based_edit_tool file_editor text_editor str_replace_based_edit
editor: text_editor_20241022 text_editor_20250124 edit_anthropic
sql: sql execute_sql run_sql sql_query query_database query_db run_query execute_query sqlite mysql sql_db_query
sql: read_query write_query operation
patch: apply_patch apply_diff patch
terminal: submit finish final_answer submit_final_result submit_final_answer answer stop solution done task_complete
terminal: task_completed complete_task complete task_done attempt_completion submit_answer give_answer return_answer
terminal: submit_solution submit_result finish_task submit_review final_result structured_output mark_task_complete
terminal: terminate finished
give_up: exit_forfeit give_up give_up_and_restart forfeit abort report_infeasible
ask: ask_user ask_followup_question ask_user_question ask_human ask clarify ask_clarification request_user_input
ask: question human_input ask_question message_ask_user call_user
say: respond send_msg_to_user reply message_user respond_to_user send_message_to_user say notify_user reply_to_user
say: talk_to_user message_notify_user
""")
"""Name of a tool whose arguments matter -> the group of tools whose rule it follows (`tool_rules`)."""

_KINDS = read_table("""
read: view open open_file goto goto_line scroll_up scroll_down read read_file view_file cat list_dir list_directory
read: list_files ls read_many_files notebook_read file_read get_file get_file_contents read_text_file show_file
read: view_source_code tree directory_tree head list_directory_tree read_multiple_files read_docx read_pdf
read: read_document view_image
search: grep glob find_file search_dir search_file search_files codebase_search grep_search file_search web_search
search: web_fetch webfetch websearch browse google search ripgrep fetch find_by_name wikipedia wikipedia_search
search: google_search fetch_url visit_page tool_search get_relations get_neighbors get_attributes argmax argmin
search: intersection count find_file_by_name search_code bash_output lsp semantic_search url_fetch web_browser
search: codesearch grep_files lsp_hover task_output web_extract browser_snapshot browser_vision
search: browser_take_screenshot browser_console_messages browser_network_requests
write: create edit write write_file str_replace insert multi_edit edit_file replace create_file search_replace
write: write_to_file replace_in_file insert_content notebook_edit append_file edit_file_by_replace
write: insert_content_at_line append_to_file write_docx edit_notebook edit_block file_write file_edit overwrite
write: save_file find_and_replace find_and_replace_code insert_line multiedit reapply
undo: undo_edit undo revert_file restore_file
verify: run_tests run_test test execute_tests lint run_linter get_diagnostics type_check read_lints lsp_diagnostics
verify: get_errors
pure_read: think calculate calculator todo_read todoread wait sleep wait_agent await codebase_investigator noop no_op
pure_read: evaluate_expression math wolfram_alpha reflect
own_state: todo todos todo_list todo_write todowrite write_todos manage_todo_list plan update_plan create_plan
own_state: task_tracker task_create task_update plan_enter plan_exit enter_plan_mode exit_plan_mode switch_mode
own_state: create_goal update_goal sequential_thinking sequentialthinking
unknown: task agent subagent spawn_agent delegate_task delegate_to_agent skill activate_skill
sandbox_exec: kill_shell kill_bash task_stop process monitor js_repl
local_write: delete_file enter_worktree exit_worktree save_memory
external_write: click type fill press key_press hover select select_option drag scroll go_back go_forward new_tab
external_write: close_tab page_close tab_focus page_focus act take put toggle use clean heat cool examine look inventory
external_write: browser computer mouse keyboard go move drag_and_drop upload_file dblclick browser_navigate
external_write: browser_navigate_back browser_click browser_type browser_scroll browser_back browser_press
external_write: browser_press_key browser_tabs browser_hover browser_drag browser_select_option browser_fill_form
external_write: browser_file_upload browser_handle_dialog browser_wait_for browser_close browser_console
external_write: browser_evaluate browser_resize
""")


def _find_kind(group: str) -> tuple[CallKind, Effect | None]:
    if group == "own_state":
        return CallKind.OTHER, Effect.LOCAL_WRITE
    return (CallKind.OTHER, Effect(group)) if group in {*Effect} else (CallKind[group.upper()], None)


TOOL_KINDS = {name: _find_kind(group) for name, group in _KINDS.items()}
"""Name of any other tool in snake case -> its kind, and its effect or `None` for the kind's default. Those that are
listed by their effect are of the kind `OTHER`: subagents and skills, whose call does not say what they do (`unknown`),
processes that the agent started earlier (`sandbox_exec`), pages and worlds (`external_write`)."""
OWN_STATE_TOOLS = frozenset(name for name, group in _KINDS.items() if group == "own_state")
"""Tools that only change what the agent keeps for itself (its plan, list or mode), which no other tool shows."""
OWN_STATE_READERS = split_words("todo todos todo_list manage_todo_list task_tracker")
"""Those that show the list if the arguments say so, or if there are none."""

READ_VERBS = split_words("""
get list search lookup look find check fetch query retrieve show describe browse read view download scrape crawl grep
glob google wikipedia inspect track detect suggest recommend autocomplete see display count filter explore match resolve
locate compare explain preview visit recall
""")
"""A tool whose name starts with one of these looks something up."""
CHANGE_VERBS = split_words("""
add append apply approve archive assign authenticate authorize ban block book cancel change charge checkout clear clone
close commit confirm connect copy create deactivate delete deploy deposit disable disconnect draft edit enable exchange
execute export fill flag follow forward grant handle import initiate insert install invite issue join kill leave like
link lock log login logout make mark merge modify move mute notify open order pay pause place play post process publish
purchase push put record redeem refund register reject remove rename renew reopen replace reply request reschedule
reserve reset resolve_ticket restart resume return revoke run save schedule send set share sign start stop store submit
subscribe switch sync tag toggle transfer trigger turn unblock unfollow uninstall unlock unsubscribe update upgrade
upload validate verify void withdraw write waive ship sell buy rate review escalate
""")
"""A tool whose name starts with one of these changes something, or acts."""
_NOUNS = split_words("""
order post log record store place book block charge review rate link like mark tag share play follow leave process
request issue exchange return sell buy push register run set open close import export copy ban pay reply start stop turn
flag fill handle change void schedule draft commit clone trigger grant merge lock login join move sign switch transfer
purchase reserve subscribe refund deposit release checkout forward approve
""")
SURE_CHANGES = (CHANGE_VERBS - _NOUNS) | split_words("""
upsert destroy drop purge wipe erase truncate overwrite terminate reboot shutdown restore rollback rotate provision
patch prune undeploy unpublish evict drain bulkdelete del rm
""")
"""Verbs of change that are not also nouns: a tool with one of them anywhere in its name is never a read."""
COMPUTE_VERBS = split_words("""
calculate compute convert translate encode decode encrypt decrypt hash generate solve evaluate plot render format parse
analyze analyse summarize summarise classify predict estimate think simulate extract optimize sort round sum multiply
divide subtract factorial integrate
""")
"""A tool whose name starts with one of these computes."""
DATA_NOUNS = split_words("""
detail details info information status list data profile results result history stats statistics weather price prices
forecast availability schedule balance news items records metadata summary ranking rankings quote quotes searcher wiki
dictionary lookup search finder query overview trends suggestions recommendations catalog directory listing listings
rates rate
""")
"""A tool whose name ends with one of these returns data."""
READS_WITH_DOUBT = split_words("track match resolve download display")
"""Verbs of reading that can also mean changes: `resolve_incident`, `track_event`, `download_file`."""

ELSEWHERE_KEYS = split_words("""
owner repo repository repo_name pull_number pullNumber issue_number branch project_id projectId bucket bucket_name
space_id site_id page_id pageId doc_id document_id folder_id drive_id channel channel_id
""")
"""Arguments of tools that change something on a server, although they may name a path there."""
ELSEWHERE_NOUNS = split_words("""
comment comments review issue request pull page secret message email mail ticket wiki gist repo repository commit branch
release record bucket blob object channel site item
""")
"""Words in the names of such tools."""
PATH_KEYS = (
    "path", "file_path", "filePath", "filepath", "filename", "file_name", "file", "target_file", "notebook_path",
    "absolute_path", "relative_path", "relative_workspace_path", "AbsolutePath", "TargetFile",
)  # fmt: skip
"""Names of arguments that hold a path; the first may be part of an address, the others name files."""


def split_words_of_name(name: str) -> list[str]:
    """Split a tool name in snake, kebab or camel case into its words, in lower case."""
    return [word.lower() for word in _SPLIT.findall(name[:200])]


@lru_cache(maxsize=512)
def to_snake_case(name: str) -> str:
    """A tool name as the tables have it."""
    return "_".join(split_words_of_name(name))
