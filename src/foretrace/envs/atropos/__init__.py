"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`.

`environment` is the environment itself, `config` its settings, and `groups` makes the data for a trainer.
"""
