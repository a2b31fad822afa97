"""Runs from the API of a running backend: one file a backend, and one client. Only ``client`` has sockets."""
