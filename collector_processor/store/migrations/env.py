"""Alembic's entry point: runs the migrations on the connection that ``upgrade.py`` passes."""

from __future__ import annotations

from alembic import context

from collector_processor.store.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True
)
context.run_migrations()
