"""What is used of rensa, which brings no types."""

from collections.abc import Iterable

class RMinHashDigestMatrix:
    def to_rows(self) -> list[list[int]]: ...

class RMinHash:
    ALGORITHM_VERSION: int
    @classmethod
    def digest_matrix_from_flat_token_hashes(
        cls, token_hashes: Iterable[int], row_offsets: Iterable[int], num_perm: int, seed: int
    ) -> RMinHashDigestMatrix: ...
