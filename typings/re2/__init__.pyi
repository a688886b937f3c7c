"""What is used of google-re2, which brings no types."""

class Options:
    max_mem: int
    never_capture: bool

class Pattern:
    def search(self, text: bytes) -> object | None: ...

def compile(pattern: str, options: Options | None = None) -> Pattern: ...
