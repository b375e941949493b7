"""Everything that makes a benchmark give up a scenario instead of printing a figure that means nothing.

BenchError
├── NotReadyError       a server ended, or stayed silent, instead of becoming ready
├── BadResponseError    a server answered with something other than whole streams of chat chunks, or too late
├── ChildEndedError     a child process that is no server (the bare engine, the tokenizer) ended early
├── OutOfTimeError      a scenario's time was up before it had measured anything
└── UnequalWorkError    two runs that were to be compared did different work
"""


class BenchError(Exception):
    pass


class NotReadyError(BenchError):
    pass


class BadResponseError(BenchError):
    pass


class ChildEndedError(BenchError):
    pass


class UnequalWorkError(BenchError):
    pass


class OutOfTimeError(BenchError):
    pass
