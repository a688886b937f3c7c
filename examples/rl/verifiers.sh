#!/bin/sh
# Two attempts at each of four problems through `vf-eval`; the model server is at URL, e.g. http://127.0.0.1:8080/v1.
set -e
vf-eval foretrace-env -m "${MODEL:-demo-model}" -n 4 -r 2 --client.base-url "$URL" --client.api-key-var NO_KEY \
    --env.agent.harness.protocol interleaved_tools --no-push --no-rich -o out --run.name it
