"""What questions without an id are called, and which ids a file has had so far, in little memory."""

from __future__ import annotations

import hashlib
from array import array

from agent_r1.questions.records import Question

FIRST_SLOTS = 1 << 10


def made_id(question: Question) -> str:
    """An id such as "gsm8k:0c4f9e...": the dataset and 16 hex digits of what is asked and what counts as right.

    So it stays where a file is cut, sorted or converted, and differs where one text has other gold answers or asks
    about another database.
    """
    place = (str(question.metadata.get(key, "")) for key in ("database", "dialect"))
    parts = "\x1f".join((question.text, *question.answers, "", *place))
    return f"{question.dataset}:{hashlib.sha256(parts.encode()).hexdigest()[:16]}"


class SeenIds:
    """A set of ids that keeps 8 bytes of a hash of each: some 16 MB for a million.

    It may say that it has an id that it has not, about once in 10**7 files of a million; who acts on that looks again.
    """

    def __init__(self) -> None:
        self._slots = array("Q", [0]) * FIRST_SLOTS  # 0: free. A hash lies at its place, or in the next free one
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, identity: str) -> bool:
        """Remember an id; whether it is new."""
        if 3 * self._count >= 2 * len(self._slots):
            self._grow()
        number = int.from_bytes(hashlib.blake2b(identity.encode(), digest_size=8).digest()) or 1
        new = self._put(number)
        self._count += new
        return new

    def _put(self, number: int) -> bool:
        slots, last = self._slots, len(self._slots) - 1
        place = number & last
        while slots[place]:
            if slots[place] == number:
                return False
            place = (place + 1) & last
        slots[place] = number
        return True

    def _grow(self) -> None:
        before, self._slots = self._slots, array("Q", [0]) * (2 * len(self._slots))
        for number in before:
            if number:
                self._put(number)
