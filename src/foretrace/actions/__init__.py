"""Labels of steps: nine action types, the effects of a step, and the one definition of "the same action"."""
