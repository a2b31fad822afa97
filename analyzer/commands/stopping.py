"""How a service's process ends: told by a signal, or by a part of it that failed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

__all__ = ["told_to_stop", "until_stopped"]


def told_to_stop() -> asyncio.Event:
    """Return what is set by SIGTERM or Ctrl-C; a second one ends the process at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop, stopped)
    return stopped


async def until_stopped(stopped: asyncio.Event, failure: asyncio.Future[None]) -> None:
    """Wait until told to stop; raises what ended a part of the service, if that comes first."""
    stopping = asyncio.create_task(stopped.wait())
    failure.add_done_callback(lambda _failed: stopping.cancel())
    try:
        await stopping
    except asyncio.CancelledError:
        if not failure.done():
            raise
        failure.result()


def _stop(stopped: asyncio.Event) -> None:
    if stopped.is_set():
        logging.getLogger(__name__).warning("told twice: ending at once; what is not finished is resumed")
        os._exit(130)
    stopped.set()
