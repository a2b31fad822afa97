"""Process that a trial starts in place of a program: an MCP server over stdio with recorded results.

The gateway decides on each message of the client: the answer comes from the tape, or the real server, a child
of this process, gets the message. If the gateway does not answer, no message reaches the server. A command
that starts no declared server is executed unchanged. Imports little, because it delays those commands too.

Lists of tools lose the schemas of results, here and in the gateway: clients check results against these
schemas, and traces seldom hold the structured half of a result.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

_PATIENCE_S: Final = 30.0
_NOT_FOUND: Final = 127
"""Exit code of shells for a command that is not found."""
_PARSE_ERROR: Final = -32_700
_REFUSED: Final = -32_000


def main(file: str, arguments: list[str]) -> NoReturn:
    """Take the place of a program.

    Args:
        file: JSON written by ``analyzer.experiment.replay.open_trial``.
        arguments: those of the program.
    """
    settings = json.loads(Path(file).read_text(encoding="utf-8"))
    folder, environ = settings["folder"], dict(os.environ)
    path = os.pathsep.join(part for part in os.get_exec_path() if part != folder)
    for server in settings["servers"]:
        if arguments[: len(server["prefix"])] == server["prefix"]:
            begin = [*server["runs"], *arguments[len(server["prefix"]) :]]
            environ["PATH"] = path
            sys.exit(_StandIn(server["url"]).serve([_found(begin[0], path), *begin[1:]], environ))
    program = _found(settings["program"], path)
    os.execve(program, [program, *arguments], environ)  # noqa: S606 - what the workflow asked for


def _found(program: str, path: str) -> str:
    found = shutil.which(program, path=path)
    if found is None:
        sys.stderr.write(f"blamespan: {program}: command not found\n")
        sys.exit(_NOT_FOUND)
    return found


class _StandIn:
    """Proxy between the client on our standard input and output and the real server."""

    def __init__(self, url: str) -> None:
        self._url: Final = urlsplit(url)
        self._output: Final = sys.stdout.buffer
        self._writing: Final = threading.Lock()

    def serve(self, command: list[str], environ: dict[str, str]) -> int:
        """Serve until the server ends; return its exit code."""
        with subprocess.Popen(  # noqa: S603 - the command that the workflow starts
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        ) as server:
            signal.signal(signal.SIGTERM, lambda *_: server.terminate())
            passing_back = threading.Thread(target=self._pass_back, args=(server,), daemon=True)
            passing_back.start()
            for line in sys.stdin.buffer:
                if line.strip():
                    self._handle(line, server)
            assert server.stdin is not None
            with suppress(BrokenPipeError):
                server.stdin.close()
            passing_back.join()  # returns only if the client does not read any more
            server.terminate()
            return server.wait()

    def _pass_back(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdout is not None
        with suppress(BrokenPipeError):
            for line in server.stdout:
                self._write(without_output_schemas(line.rstrip(b"\r\n")))
            os._exit(server.wait())  # the client's end of our input may stay open

    def _handle(self, line: bytes, server: subprocess.Popen[bytes]) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._refuse(None, _PARSE_ERROR, "expected JSON")
            return
        sent = json.dumps(message).encode()  # re-encoded: each key has one value
        try:
            status, answer = self._asked(sent)
        except (OSError, http.client.HTTPException) as error:
            status, answer = 0, str(error).encode()
        if status == http.client.NO_CONTENT:
            _tell(server, sent)
        elif status == http.client.OK:
            self._write(answer)
        else:
            reply = answer.decode(errors="replace").strip()
            self._refuse(message, _REFUSED, f"the replay gateway does not answer: {reply}")

    def _asked(self, message: bytes) -> tuple[int, bytes]:
        assert self._url.hostname is not None
        connection = http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=_PATIENCE_S)
        try:
            connection.request("POST", self._url.path, message, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _refuse(self, message: Any, code: int, reason: str) -> None:
        asked = message.get("id") if isinstance(message, dict) else None
        error = {"code": code, "message": f"blamespan: {reason}"}
        self._write(json.dumps({"jsonrpc": "2.0", "id": asked, "error": error}).encode())

    def _write(self, line: bytes) -> None:
        with self._writing:
            self._output.write(line + b"\n")
            self._output.flush()


def _tell(server: subprocess.Popen[bytes], message: bytes) -> None:
    assert server.stdin is not None
    with suppress(BrokenPipeError):  # the server has ended, which `_pass_back` sees too
        server.stdin.write(message + b"\n")
        server.stdin.flush()


_DATA: Final = b"data:"


def without_output_schemas(body: bytes) -> bytes:
    """Return a list of tools, as JSON or server-sent events, without the schemas; other bytes unchanged."""
    whole = _without_schemas(body)
    if whole is not None:
        return whole
    return b"\n".join(_event_without_schemas(line) for line in body.split(b"\n"))


def _event_without_schemas(line: bytes) -> bytes:
    found = _without_schemas(line.removeprefix(_DATA)) if line.startswith(_DATA) else None
    return line if found is None else _DATA + b" " + found


def _without_schemas(text: bytes) -> bytes | None:
    try:
        message = json.loads(text)
        for tool in message["result"]["tools"]:
            tool.pop("outputSchema", None)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return json.dumps(message).encode()
