#!/bin/sh
# Groups of rollouts of the demo model into data/code_trace.jsonl, as a trainer of Atropos takes them, on a CPU.
set -e
python -m foretrace.envs.atropos process --env.model demo --env.protocol tools --env.limit 10 --env.total_steps 2 \
    --env.group_size 4 --env.max_tokens 200 --env.traces_dir traces
