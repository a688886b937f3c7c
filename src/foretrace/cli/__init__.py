"""The command `foretrace`: one file for each verb."""
