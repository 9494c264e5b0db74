"""One holder per run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchctl.core.errors import HeldError, StorageError
from batchctl.files.lock import RunLock

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom batchctl.files.lock import RunLock\n"
    "with RunLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
)


def test_a_second_holder_is_refused_at_once(tmp_path: Path) -> None:
    """The refusal names process and time and has exit code 5 (field reports 169, 176)."""
    path = tmp_path / "state" / "nightly" / "lock"
    with (
        RunLock(path),
        pytest.raises(HeldError, match=rf"run nightly is held by process {os.getpid()} since 20") as caught,
    ):
        RunLock(path).__enter__()
    assert caught.value.exit_code == 5
    assert caught.value.hint
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with RunLock(path):
        pass


def test_two_runs_are_held_at_once(tmp_path: Path) -> None:
    """Locks of different runs do not meet, also inside one process."""
    with RunLock(tmp_path / "a" / "lock"), RunLock(tmp_path / "b" / "lock"):
        pass


def test_a_removed_lock_file_holds_nobody(tmp_path: Path) -> None:
    """A holder may take its lock file away; the next gets a lock on a new one."""
    path = tmp_path / "lock"
    with RunLock(path):
        path.unlink()
    with RunLock(path), pytest.raises(HeldError):
        RunLock(path).__enter__()


@pytest.mark.slow
def test_a_dead_holder_leaves_no_lock(tmp_path: Path) -> None:
    """After a kill the run is free, whatever the file says (field report 176)."""
    path = tmp_path / "run" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HeldError, match=f"process {holder.pid} "):
            RunLock(path).__enter__()
        holder.kill()
        holder.wait()
        with RunLock(path):
            pass


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """A folder that cannot be made, a link in the lock's place: storage errors, not tracebacks."""
    (tmp_path / "state").write_bytes(b"")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "state" / "run" / "lock", tmp_path / "lock"):
        with pytest.raises(StorageError, match=str(tmp_path)):
            RunLock(path).__enter__()
    assert not (tmp_path / "elsewhere").exists()
