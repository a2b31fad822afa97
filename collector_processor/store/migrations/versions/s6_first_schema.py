"""Tables of the first schema: a new store gets those of ``schema.py`` at once, without any migration."""

revision = "s6"
"""Not a number: stores made before the first release have earlier revisions, and are refused."""
down_revision = None
