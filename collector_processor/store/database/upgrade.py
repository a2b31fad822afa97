"""Tables of a new store, and upgrades of an older one by Alembic's migrations (``migrations/``).

Each in one transaction. A schema that this version does not know comes from a newer version, or from a state
of the code before the first release, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collector_processor.core.disk import StoreError
from collector_processor.otlp import CollectorError
from collector_processor.store.database.driver import Driver

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger(__name__)

SCHEMA: Final = "s6"
"""Revision that this version reads and writes: the last migration."""
STEPS: Final = Path(__file__).parents[1] / "migrations"
_READ_SCHEMA: Final = "SELECT version_num FROM alembic_version"


def schema_of(driver: Driver) -> str | None:
    """Return the revision of the schema; ``None`` if there is none."""
    try:
        found = driver.execute(_READ_SCHEMA).fetchone()
    except StoreError:
        raise
    except Exception as error:
        if "alembic_version" in str(error):  # there is no such table
            return None
        raise
    return None if found is None else str(found[0])


def upgrade(connect: Callable[[], Connection], schema: str | None, name: str, instead: str) -> None:
    """Create the tables or run the missing migrations, all or none; another process may have done so.

    Args:
        connect: opens a connection in a transaction.
        schema: the store's revision; ``None`` for an empty store.
        name: the store, in messages.
        instead: the remedy if this version cannot read the store.

    Raises:
        CollectorError: the revision is unknown, or a migration fails.
    """
    # Takes 0.3 s; most starts find the store as it should be.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from collector_processor.store.schema import METADATA  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(STEPS).replace("%", "%%"))
    try:
        with closing(connect()) as connection:
            config.attributes["connection"] = connection
            if MigrationContext.configure(connection).get_current_revision() is None:
                METADATA.create_all(connection, checkfirst=False)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")
                logger.info("store schema is up to date", extra={"store": name, "schema": SCHEMA})
            connection.exec_driver_sql("COMMIT")
    except CommandError as error:
        raise CollectorError(
            f"{name} was written by a newer or an unreleased blamespan (schema {schema}; this version reads"
            f" {SCHEMA}): install that version, or {instead}"
        ) from error
    except SQLAlchemyError as error:
        raise CollectorError(f"{name} cannot be upgraded: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the first line of a server's or driver's error message; it holds no password."""
    said = str(getattr(error, "orig", None) or error).strip()
    return said.splitlines()[0] if said else type(error).__name__
