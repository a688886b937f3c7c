"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`."""
