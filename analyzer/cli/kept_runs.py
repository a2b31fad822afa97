"""The store of a data directory, opened by commands; a kept run in it, by its id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final

from analyzer.cli.output import CommandFailed, WrongUsage, optional
from analyzer.inquiry.calibration import Worth
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_trace import KeptTrace, kept_trace
from analyzer.issues.labels.label_store import LabelStore, OpinionStore
from analyzer.issues.labels.track_records import track_records, worths
from analyzer.issues.recurrence import Issue
from collector_processor.core.analysis import Earned
from collector_processor.mapping_files import open_reader
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.settings import Settings, load_settings
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.verdicts import RunStore

TenantOption = Annotated[
    str | None, optional("TENANT", "The run's tenant, if several tenants have a run of this id.")
]
DataDirOption = Annotated[
    Path | None, optional("DIR", "The service's data directory; default: BLAMESPAN_DATA_DIR.")
]


class NoStore(CommandFailed):
    """No service has kept anything in the data directory yet."""

    def __init__(self, folder: Path, content: str) -> None:
        """Name the directory, and the data that the command looks for."""
        super().__init__(f"{folder}: holds no {content}: expected the data directory of `blamespan serve`")
        self.folder: Final = folder


def neither(name: str, error: Exception) -> WrongUsage:
    """Return the refusal of a name that is no file's; ``error`` says why it is no kept run's either."""
    why = f"nothing is kept in {error.folder}" if isinstance(error, NoStore) else error
    return WrongUsage(f"{name}: no such file, and {why}")


@contextmanager
def opened_store(settings: Settings, content: str) -> Iterator[StoreConnection]:
    """Open the store, even if a service is using it; ``content`` names the data that the command looks for.

    Raises:
        CommandFailed: there is no store yet.
        CollectorError: it cannot be used.
    """
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        raise NoStore(settings.data_dir, content)
    with closing(open_database(place)) as database, closing(database.connect()) as db:
        yield db


def open_kept(run: str, *, tenant: str | None = None, data_dir: Path | None = None) -> KeptTrace:
    """Return a kept run of the data directory, or of the store at ``BLAMESPAN_STORE_URL``.

    Raises:
        NoSuchRun: the id matches no run or several.
        NotKept: its spans are not kept.
        CommandFailed: there is no store yet.
        CollectorError: the store cannot be used.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    with opened_store(settings, "kept runs") as db:
        return kept_trace(db, run, None if tenant is None else Tenant(tenant), open_reader(settings.mappings))


def read_records(settings: Settings) -> tuple[Earned, Mapping[str, Worth]]:
    """Return what labels and proofs in the store say of models and of evidence.

    It is the record of the only tenant that gave labels; if several did, that of runs without a tenant.

    Raises:
        CommandFailed: there is no store yet.
        CollectorError: the store cannot be used.
    """
    with opened_store(settings, "labels") as db:
        labels = LabelStore(db)
        tenants = labels.tenants()
        tenant = tenants[0] if len(tenants) == 1 else NO_TENANT
        stores = labels, RunStore(db), OpinionStore(db)
        return track_records(*stores, tenant), worths(*stores, tenant)


def find_issue(store: IssueStore, prefix: str, tenant: Tenant | None) -> tuple[Tenant, Issue]:
    """Return the only issue whose id begins with ``prefix``, and its tenant.

    Raises:
        CommandFailed: there is none, or there are several.
    """
    found = store.starting_with(prefix, tenant) if re.fullmatch("[0-9a-f]{1,16}", prefix) else []
    match found:
        case [one]:
            return one
        case []:
            raise CommandFailed(f"no issue {prefix!r}: expected an id that `blamespan issues` lists")
        case _ if len({issue.fingerprint.id for _, issue in found}) == 1:
            shown = ", ".join(repr(owner) for owner, _ in found)
            raise CommandFailed(f"several tenants have issue {prefix}: choose one with --tenant: {shown}")
        case _:
            ids = ", ".join(issue.fingerprint.id for _, issue in found)
            raise CommandFailed(f"several issues begin with {prefix!r}: {ids}")
