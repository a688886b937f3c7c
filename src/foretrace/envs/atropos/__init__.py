"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`.

`environment` is the environment itself, `config` its settings, `groups` what a trainer is sent, `load_balancer` which
server a rollout goes to, `lifecycle` how a run waits and ends. `model_server` is for environments of others, too.
"""
