"""A chat server as a process that a test can kill: ``python -m tests.e2e.mortal_model LIVES ANSWER``.

Prints its base URL, then a line for each call: ``answered`` for the first few, and ``waiting`` for those that
it never answers.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from aiohttp import web

from tests.e2e.model_server import ModelServer, Scripted


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(slots=True, kw_only=True)
class Mortal(ModelServer):
    """Answers while it has lives left; the rest is silence, with the connections open."""

    lives: int

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer, or keep waiting."""
        if not self.lives:
            say("waiting")
            await asyncio.Future()
        self.lives -= 1
        answer = await ModelServer.handle(self, request)
        await answer.prepare(request)
        await answer.write_eof()
        say("answered")  # only now: the test may kill us at once
        return answer


async def main(lives: int, text: str) -> None:
    """Serve on a free loopback port until killed."""
    server = Mortal(script=[Scripted(text=text)], lives=lives)
    application = web.Application()
    application.router.add_post("/v1/chat/completions", server.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    say(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
