"""Replay of recorded runs: a tape of model calls, and a gateway that plays it back to the rerun workflow.

``tape`` is the recording, ``read_tape`` reads it from a run's raw spans, ``canonical`` compares requests,
``trial`` decides the answer to each request of a rerun, ``wire`` speaks the providers' formats, and
``gateway_server`` is the HTTP server around them. Modules with sockets, files or processes are not pure.
"""
