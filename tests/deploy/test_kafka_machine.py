"""What docs/kafka.md says to type on one machine makes a database that blamespan can use."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing

from collector_processor.store.database.connection import open_database
from tests.backends.postgresql import postgresql
from tools.markdown_blocks import DOCS, blocks

PSQL = "sudo -u postgres psql"


def test_the_documented_role_and_database_hold_a_store() -> None:
    texts = [block.text for block in blocks(DOCS / "kafka.md")]
    (made,) = (text for text in texts if PSQL in text)
    (started,) = (text for text in texts if "BLAMESPAN_STORE_URL=" in text and "127.0.0.1" in text)
    (url,) = re.findall(r"BLAMESPAN_STORE_URL=(\S+)", started)
    with postgresql() as server:
        psql = f"{server.binaries / 'psql'} -qv ON_ERROR_STOP=1 -h {server.folder} -U postgres"
        done = subprocess.run(
            ["sh", "-c", made.replace(PSQL, psql)], capture_output=True, check=False, text=True
        )
        assert done.returncode == 0, done.stderr
        place = url.replace("127.0.0.1", "") + f"?host={server.folder}"
        for _ in range(2):  # the first time it makes the tables
            with closing(open_database(place)) as database, closing(database.connect()) as db:
                assert db.execute("SELECT count(*) FROM verdict").fetchone()[0] == 0
