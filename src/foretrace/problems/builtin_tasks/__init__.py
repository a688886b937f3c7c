"""The texts and tests of the problems that come with foretrace."""
