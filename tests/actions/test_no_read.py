"""What changes something is never labeled a pure read, however it is written: it would be run early."""

# ruff: noqa: E501 - tables of commands
from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foretrace.actions.call_facts import CallKind
from foretrace.actions.shell.command_rules import classify_shell
from foretrace.actions.sql_rules import is_read_only_sql
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_rules import classify_call, find_tool_group

COMMANDS = {
    "aws": "aws lambda delete-function --function-name get-user; aws lambda invoke --function-name list-orders out.json; aws dynamodb delete-table --table-name lookup-cache; aws s3 cp ls s3://b/; aws s3api get-object --bucket b --key k out.bin; aws s3 rm ls; aws --profile list-x s3 rm s3://b/k; aws --region describe-x ec2 terminate-instances --instance-ids i-1; aws iam create-user --user-name list-users; aws s3 sync wait s3://b; aws apigateway get-export --rest-api-id a --stage-name p --export-type swagger f.json; aws glacier get-job-output --account-id - --vault-name v --job-id j out; aws sqs purge-queue --queue-url get-q; aws ssm send-command --document-name get-x; aws --frobnicate describe-x ec2 run-instances",
    "gcloud": "gcloud run deploy list; gcloud compute instances delete describe; gcloud projects delete list; gcloud config set project list; gcloud --project list compute instances delete vm; gcloud compute ssh list; gcloud functions call describe; gcloud secrets create read; gcloud app deploy list; gcloud pubsub topics publish list",
    "az": "az group delete --name show; az vm delete -n list; az webapp deploy show; az storage blob upload --name list --file show; az aks get-credentials -n show; az --subscription show group delete -n x; az rest --method delete --url list; az role assignment create --role list; az keyvault secret set --name show",
    "kubectl": "kubectl -n get delete pod x; kubectl --context describe delete pod x; kubectl --context=get delete pod x; kubectl --kubeconfig logs apply -f a; kubectl config set-context get; kubectl rollout -n status undo deploy/a; kubectl rollout restart deploy/status; kubectl cluster-info dump --output-directory=o; kubectl cluster-info --context c dump; kubectl exec get -- ls; kubectl cp get:/a b; kubectl scale --replicas=0 deploy/logs; kubectl --frobnicate get delete pod x",
    "helm": "helm -n list uninstall x; helm --kube-context status upgrade a b; helm uninstall list; helm repo add list https://x; helm rollback get 1; helm push show oci://x",
    "terraform": "terraform providers lock; terraform providers mirror show; terraform -chdir=show apply; terraform state rm show; terraform workspace new list; terraform apply show; terraform import graph x; tofu destroy -target output",
    "docker": "docker --context ps rm x; docker -H logs rm c; docker compose -f logs rm; docker-compose -f ps down; docker rm ps; docker image rm inspect; docker volume prune; docker tag images x; docker push ps; docker compose -p logs down; docker context use inspect",
    "gh": "gh repo create api; gh repo delete api --yes; gh label create status; gh workflow run api; gh pr merge view; gh issue close list; gh -R view pr merge 3; gh secret set list; gh release create view; gh auth login --web; gh api -Xdelete repos/o/r; gh api -iX DELETE repos/o/r; gh api -iXPUT repos/o/r; gh api repos/o/r -iftitle=x; gh api --method delete repos/o/r; gh api --input a.json repos/o/r/issues; gh api -X GET -X DELETE repos/o/r; gh pr checkout list; gh variable delete view",
    "request": "curl -sX DELETE https://x.org; curl -sXPOST https://x.org; curl -Xdelete https://x.org; curl -X POST -d GET https://x.org; curl -sd a=1 https://x.org; curl --json '{}' https://x.org; curl --request patch https://x.org; curl -sT f ftp://x.org; curl -Q 'DELE f' ftp://x.org; wget -qO- --method=DELETE https://x.org; wget -qO- --post-file=a https://x.org; http DELETE https://x.org; http https://x.org a=1; http PUT x.org/y b:=2; wget -qO- --method PUT https://x.org",
    "package": "npm uninstall list; npm install view; npm audit fix; npm publish ls; npm --prefix ls install x; yarn add list; pnpm remove why; cargo --config tree install x; go env -w GOFLAGS=x; go -C list get x; composer remove show; pip --proxy list install x; pip config set global.index-url x; uv --directory tree add x; hg --cwd log commit; flask --app routes db upgrade; poetry -C show add x",
    "git": "git branch -r -d origin/x; git branch -a -D x; git remote -v add o u; git tag -l -d v1; git config --list --unset a.b; git -C log push",
    "setup": "source deploy.sh; . ./migrate.sh; trap 'rm -rf x' EXIT; nvm install 20",
    "program": "test-storybook --url x; get-deps install; test-deploy prod; show-me --write; resolve-conflicts a; measure-all x",
    "PowerShell": "Get-Content a | Tee-Object -FilePath b; gci *.tmp | ForEach-Object { Remove-Item $_ }; gci | % { rm $_ }; Invoke-RestMethod -Uri https://x.org -Method:Delete; irm https://x.org -Me Delete; irm https://x.org -CustomMethod PURGE; iwr https://x.org -b x; iwr https://x.org -o a.zip; iwr https://x.org -OutF a.zip; iwr https://x.org -OutFile:a.zip; Set-ExecutionPolicy Bypass; Import-Module ./deploy.psm1; Get-Content (Remove-Item x); Get-Content $(Remove-Item x); Get-Item a | Select-Object @{n='x';e={Remove-Item $_}}; (Get-Item a).Delete(); Get-Date | Where-Object { Stop-Service x }; Get-Deps install; Test-Deploy prod; Get-WindowsUpdate -Install; Get-ChildItem | ForEach-Object Delete; [IO.File]::Delete('a') | Out-Null; Get-Content a | Set-Content b",
}
"""Kind of command -> commands, none of which is a read."""


@pytest.mark.parametrize("command", [each for text in COMMANDS.values() for each in text.split("; ")])
def test_a_command_that_changes_something_is_no_read(command: str) -> None:
    assert classify_shell(command).effect is not Effect.PURE_READ
    if command.startswith("kubectl"):
        assert classify_shell(command).effect is Effect.EXTERNAL_WRITE


FILE = {"path": "a.py"}
TEXT = {**FILE, "content": "x"}
HUB = {"owner": "o", "repo": "r", "branch": "b"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, {}) for name in ["delete__get_user", "delete/list_item", "send_email__search", "glob_delete", "DELETE/users"]),
        *((name, {}) for name in ["get_or_create_customer", "find_and_delete_user", "search_or_insert", "fetch_and_store"]),
        *((name, {}) for name in ["user_update_status", "account_delete_info", "user_delete_by_id_for_box"]),
        *((name, {}) for name in ["enable_web_search", "delete_read_file", "mcp__delete__get_user", "mcp__crm__update_list"]),
        *((name, {}) for name in ["resolve_incident", "track_event", "match_payment", "list_then_remove", "getOrCreateUser"]),
        *((name, {}) for name in ["door__open", "mcp__valve__open", "findAndUpdate", "check_and_reset", "bulk_upsert_data"]),
        *((name, {}) for name in ["lookup_replace_all", "cache_purge_details", "crm_get_or_create", "drop_table_info"]),
        ("find_and_replace", {"file": "a", "find": "x", "replace_with": "y"}),
        ("download_file", {"url": "https://x.org", **FILE}),
    ],
)  # fmt: skip
def test_a_tool_that_names_a_change_is_no_read(name: str, arguments: dict[str, Any]) -> None:
    assert classify_call(name, json.dumps(arguments)).effect is not Effect.PURE_READ


@pytest.mark.parametrize("name", ["stripe__submit", "payments__finish", "mail__stop", "slack__reply", "crm/abort"])
def test_a_tool_of_a_server_does_not_end_the_attempt(name: str) -> None:
    assert classify_call(name, "{}").kind is CallKind.OTHER
    assert find_tool_group(name) is None
    assert classify_call(f"functions.{name.replace('/', '__').rpartition('__')[2]}", "{}").kind > CallKind.VERIFY


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("create_pull_request_review_comment", {**HUB, **FILE, "body": "x"}),
        *((name, {**HUB, **TEXT}) for name in ("github__create_or_update_file", "create_file", "mcp__gh__delete_file")),
        ("notion__write", {"content": "x"}),
        ("put_object", {"bucket": "b", **TEXT}),
    ],
)
def test_a_write_on_a_server_is_no_write_of_a_file(name: str, arguments: dict[str, Any]) -> None:
    facts = classify_call(name, json.dumps(arguments))
    assert (facts.kind, facts.effect) == (CallKind.OTHER, Effect.EXTERNAL_WRITE)


def test_a_server_of_files_still_writes_them() -> None:
    assert {classify_call(name, json.dumps(TEXT)).kind for name in ("fs__edit", "update_file")} == {CallKind.WRITE}
    assert classify_call("fs__view", json.dumps(TEXT)).kind is CallKind.READ


@pytest.mark.parametrize(
    "name",
    ["get_and_increment", "describe_and_fix", "readThenFrobnicate", "crm_search_and_buy", "shop_get_and_charge",
     "start_web_search", "mark_read_file"],
)  # fmt: skip
def test_a_second_verb_that_nobody_knows(name: str) -> None:
    assert classify_call(name, "{}").effect is not Effect.PURE_READ
    assert classify_call("search_and_list", "{}").effect is Effect.PURE_READ


def test_a_long_heredoc_is_looked_into() -> None:
    facts = classify_shell("cat <<EOF\n" + "x\n" * 5000 + "$(rm x)\nEOF")
    assert facts is not None and facts.effect is not Effect.PURE_READ
    for piece in ("$(", "`", "$(a", "\\`", "`a` "):
        before = time.perf_counter()
        classify_shell("cat <<EOF\n" + piece * (200_000 // len(piece)) + "\nEOF")
        assert time.perf_counter() - before < 3, piece


STARTERS = [
    "alias ls=rm; ls x", "git -c core.pager='rm x' log", "git --exec-path=/tmp/x log", "git grep -Orm foo",
    "git difftool -y -x rm", "git ls-remote --upload-pack=touch host", "less '+!rm x' f", "docker run x cat f",
    "ls >& f", "cat <> f", "ls 1<>f", "kubectl get pods --profile=cpu", "find . -okdir rm {} \\;", "fd . --exec rm",
    "sed -n '1e rm x' f", "sed 's/a/b/e' f", "sed -f script f", 'awk \'BEGIN { "rm x" | getline }\'',
    "find . -exec cat {} \\; -exec head {} \\;", "ls | xargs cat", "sqlite3 db .schema",
    'python -c "print([l for l in open(\'f\') if \'x\' in l])"', "perl -ne 'unlink $_' f", "LD_PRELOAD=./x.so ls",
    "GIT_PAGER='rm x' git log", "export GIT_EXTERNAL_DIFF=rm; git diff", "sort --compress-program=./x f",
    "psql -c 'select 1' -o f", "curl --stderr f https://x.org", "go list -toolexec=rm", "cat <<EOF\n$(rm x)\nEOF",
    "python3 - <<EOF\nprint(open('a').read())  # `rm x`\nEOF", 'cat <<< "$(rm x)"', "[[ $(rm x) ]] && ls",
    "python3 -i -c 'print(open(1).read())' < more.py", 'ls "${x:-$(rm x)}"', 'ls "${x:-`rm x`}"',
    "PATH=/usr/bin:/evil ls", "PATH=/usr/../evil:$PATH ls", "PATH=$HOMEx/y ls", "PATH=/evil ls", "env PATH=/evil ls",
    "export PATH=/evil; ls", "LD_LIBRARY_PATH=/x ls", "date 0101000020", "date 010112002024.30", "date -us 2020-01-01",
    "sudo date --set=2020-01-01", "git log -p --ext-diff", "git branch --sort=x new", "git branch -v new",
    "git config user.name x", "git config --global user.name x", "git symbolic-ref HEAD refs/heads/x", "tar xf a.tar",
    "tar -cf t.tar a", "tar tf a.tar --to-command=sh", "tar -t -I ./x -f a", "tar czf t a", "unzip a.zip",
    "unzip -o a.zip -d l", "docker compose -f a.yml config --output=f", "npm config set get x", "go mod tidy",
    "aws logs delete-log-group --log-group-name tail", "shuf -o f f",
    'cat f | python -c "import sys; open(\'o\', \'w\').write(sys.stdin.read())"',
    'python -c "import sqlite3; print(sqlite3.connect(\'a.db\').execute(\'select f() from t\').fetchall())"',
    "base64 -Do y x", "PATH=${PATH/usr/evil} ls", "base64 -i a -o b", "svn diff --diff-cmd x",
    "curl -sL http://x -o a.bin && ls -lh a.bin", "curl -fsSLO http://x/y", "curl --output=a http://x",
    "curl -c jar http://x", "wget http://x/y", "wget -q http://x/y", "find . -fprint out", "sed -n 'w out' a",
    "yq -i .a f", "git log --output=out", "git reflog expire --all", "uniq a b", "xxd -r a b", "tree -o out",
    "date -s 12:00", "sort a -uo out", "diff a b --output=out", "rg --pre sh x",
]  # fmt: skip
READS = [
    "GIT_PAGER=cat git log", "export PAGER=cat; git log", "git -c core.pager=cat -c color.ui=never diff",
    "git log -c", "less +50 f", "ls 2>&1 >&2 2>&-", "ls >& /dev/null", "ls >&$fd", "sed -n '/a/,/b/p' docs/e",
    "sed -e 's/a/ e /' f", "docker exec c cat f", "PYTHONPATH=. cat f", "cat <<'EOF'\n$(rm x)\nEOF",
    "kubectl -n prod get pods -o yaml", "kubectl get pods -n prod", "kubectl --context=a logs x -f",
    "kubectl rollout status deploy/a", "kubectl config view", "docker compose -f a.yml logs api", "docker ps -a",
    "docker --context c images", "docker inspect rm", "gh pr view 3 --json title", "gh -R o/r pr list",
    "gh api repos/o/r --paginate --jq .name", "gh search code foo", "curl -sG https://x.org -d a=1",
    "curl -sXGET https://x.org", "npm ls --depth 0", "go list ./...", "cargo tree", "pip list", "pip config list",
    "git branch -a", "git remote -v", "source .venv/bin/activate && ls", "nvm use 20", 'ls "${x:-a}"',
    "PATH=$PATH:/opt ls", 'export PATH="$PATH:/x"; ls', "PATH+=:/x ls", "date -d yesterday", "date -u +%F",
    "date -r f", "date", "date -Iseconds", "git branch --sort=-committerdate", "git branch -a --contains x",
    "git tag --points-at HEAD", "git tag -l 'v*'", "git config user.name", "git config --global --list",
    "git diff-tree -r HEAD", "git cherry -v", "git version", "git --version", "zipinfo a.zip", "base64 -d f",
    "shuf -n 5 f", "join a b", "tr a b < f", "npm config get registry", "npm root -g", "go mod graph",
    "git branch -av", "docker top c -o pid", 'export PATH="$HOME/.local/bin:$PATH" && git status',
    "PATH=/usr/local/bin:/usr/bin which x", "PATH=~/bin:$PATH ls", "LD_LIBRARY_PATH=/usr/local/lib ldd x",
    "PATH=${HOME}/bin:/opt/x/bin:${PATH} ls", "PATH=${PATH}:/x ls", "PATH=${PATH:+$PATH:}/x ls",
    "docker manifest inspect i", "curl -s -o /dev/null -w '%{http_code}' http://x", "curl -sSL --compressed http://x",
    "curl -o- http://x", "wget -qO- http://x", "wget -O - http://x", "wget --spider http://x",
    "find . -name o -printf '%p'", "sed -n '1,5p' a", "sed 's/old/new value/' a", "git grep delete", "git log -p",
    "uniq -c a", "xxd -s 0x10 -l 16 a", "date +%s", "sort -k2 a", "yq .a f",
]  # fmt: skip


@pytest.mark.parametrize("command", STARTERS)
def test_what_starts_or_writes_more_is_no_pure_read(command: str) -> None:
    assert classify_shell(command).effect is not Effect.PURE_READ


@pytest.mark.parametrize("command", READS)
def test_a_plain_read_stays_one(command: str) -> None:
    assert classify_shell(command).effect is Effect.PURE_READ


@pytest.mark.parametrize(
    "piece", ["s/a/", "s/", "/", "|getline ", "/e", "+!", "pager", "LD_PRELOAD=", "1<>f ", "-exec "]
)
@pytest.mark.parametrize("program", ["sed -n", "awk", "perl -ne", "git -c", "less", "find .", "ls"])
def test_long_commands_are_read_in_linear_time(program: str, piece: str) -> None:
    begun = time.perf_counter()
    classify_shell(f"{program} '{piece * 40_000}' f")
    classify_shell(f"{program} {piece * 40_000}")
    assert time.perf_counter() - begun < 2


QUERIES = [
    "SELECT 1",
    "select * from t where name = 'x; DROP TABLE t'",
    "-- first\n/* then */ SELECT a FROM b; SELECT c FROM d;",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "SELECT 'insert into t' AS words FROM notes",
    'SELECT "delete from" FROM `update x set`',
    "EXPLAIN SELECT * FROM t",
    "PRAGMA table_info(t)",
    "SHOW TABLES",
    "(SELECT 1) UNION (SELECT 2)",
]


CHANGES = [
    "SELECT 1; COPY t FROM f", "WITH a AS (SELECT 1) DELETE FROM t", "SELECT * INTO b FROM c",
    "PRAGMA journal_mode(wal)", "EXPLAIN ANALYZE UPDATE ONLY t SET a = 1", "SELECT 'it\\'s'; DELETE FROM t WHERE x=''",
    "select 1 into t", "select 1; vacuum full", "select 1; drop function f", "show tables; delete t from t join u",
    "desc t; truncate t", "select 1; load y", "with a as (update t x set a=1) select 1", "pragma wal_checkpoint",
]  # fmt: skip
CALLS = [
    "select pg_terminate_backend(1)", "select setval('s', 1)", "select writefile('a', 'b')", "select f()",
    'select "f"()', "select count(*) from f(3)", "select é(1)",
]  # fmt: skip
"""Queries that call a function which may change anything."""


@pytest.mark.parametrize("text", CHANGES)
def test_what_changes_data_is_no_query(text: str) -> None:
    assert is_read_only_sql(text) is False


@pytest.mark.parametrize("text", [*CHANGES, *CALLS])
def test_a_statement_that_may_change_data_is_no_pure_read(text: str) -> None:
    assert classify_call("sql", json.dumps({"query": text})).effect is not Effect.PURE_READ


@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    assert is_read_only_sql(text) is True
    assert classify_call("sql", json.dumps({"query": text})).effect is Effect.PURE_READ


@pytest.mark.parametrize(
    "text", ["SELECT " + "'" * 200_001, "SELECT " + "/* " * 100_000, "--\n" * 100_000 + "SELECT 1"]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    began = time.process_time()
    is_read_only_sql(text)
    assert time.process_time() - began < 2
