"""foretrace's episodes as an environment of the verifiers library, which finds them as `foretrace-env`."""
