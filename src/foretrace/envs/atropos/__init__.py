"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`.

`environment` is the environment itself, `lifecycle` how a run waits and ends, `config` its settings, `groups` what a
trainer is sent.
"""
