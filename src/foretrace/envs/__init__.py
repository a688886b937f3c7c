"""RL environments: thin adapters that run the same episodes inside a trainer's library."""
