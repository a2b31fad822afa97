"""The process beside the service (``python -m analyzer.drafting.worker``): traces in, drafts out. A shell.

Traces come several in a message, and each is answered when it is done, so that the service knows of which
one this ended, if it ends.

Its input is what the service holds it by: where that lets go, however it ended, this ends too. Signals that
a terminal or an orchestrator sends to all of us are the service's to heed: it still has runs
to be analysed then.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import IO, Final

from analyzer.composition import open_analyst, open_cleaner
from analyzer.drafting.executor import draft_each
from analyzer.drafting.messages import (
    LENGTH_BYTES,
    length_of,
    read_traces,
    with_length,
    write_draft,
)
from analyzer.drafting.opening import open_drafter
from analyzer.drafting.worker_process import TRACE_CPU_S
from analyzer.json_lines import configure_logging
from collector_processor.settings import Settings

logger = logging.getLogger("analyzer.drafting.worker")  # as ``python -m`` this module has another name

READY: Final = b"ready"
ROLE: Final = "analyses"
"""What its log lines bear, beside its id: they go where the service's go."""


def main() -> None:
    """Draft until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    configure_logging(about={"role": ROLE, "pid": os.getpid()})
    with (
        suppress(BrokenPipeError),  # the service is gone; closing writes once more
        os.fdopen(os.dup(0), "rb") as inward,
        os.fdopen(os.dup(1), "wb") as outward,
    ):
        os.dup2(_logs(), 1)  # what anybody prints goes where logs go
        try:
            _serve(inward, outward)
        except BrokenPipeError:
            raise
        except Exception:  # the process's containment line
            logger.critical("the process of analyses failed", exc_info=True)
            raise SystemExit(1) from None


def _logs() -> int:
    """Return the standard error's descriptor, or one that takes all where it is closed."""
    return os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()


def _serve(inward: IO[bytes], outward: IO[bytes]) -> None:
    told = _read(inward)
    if told is None:
        return
    settings = Settings.model_validate_json(told)
    drafter = open_drafter(settings, open_analyst(settings), open_cleaner(settings))
    gc.collect()
    gc.freeze()  # what is there now stays: no look at it for garbage
    _write(outward, READY)
    while (message := _read(inward)) is not None:
        for trace in read_traces(message):
            signal.setitimer(signal.ITIMER_PROF, TRACE_CPU_S)
            (draft,) = draft_each(drafter, [trace])
            answer = write_draft(draft)
            signal.setitimer(signal.ITIMER_PROF, 0)  # reading the next message is nobody's fault
            _write(outward, answer)


def _read(inward: IO[bytes]) -> bytes | None:
    """Return the next message; ``None`` where no whole one comes any more."""
    head = inward.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    length = length_of(head)
    message = inward.read(length)
    return message if len(message) == length else None


def _write(outward: IO[bytes], message: bytes) -> None:
    outward.write(with_length(message))
    outward.flush()


if __name__ == "__main__":
    main()
