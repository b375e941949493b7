"""Turns a stream of token bytes into whole characters: a character cut across tokens waits for its last byte."""

import codecs


class Detokenizer:
    def __init__(self) -> None:
        # "replace": bytes that cannot become a character (a model may emit any byte) are shown as U+FFFD.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """U+FFFD for a character that was never finished."""
        return self._decoder.decode(b"", final=True)
