"""Output folders, local and on a store, and where runs live."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import fsspec
import pytest

from batchctl.core.errors import InputError, StorageError
from batchctl.files.names import check_run_name, workdir
from batchctl.files.outputs import OutputFolder


@pytest.fixture(name="memory")
def fixture_memory() -> Iterator[fsspec.AbstractFileSystem]:
    """An empty store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def test_a_local_folder_is_written_in_place(tmp_path: Path) -> None:
    """Making the object touches nothing; files are whole, private and described."""
    folder = OutputFolder(str(tmp_path / "runs" / "a"), tmp_path / "work")
    assert not folder.local.exists()
    folder.write_atomic("manifest.json", b"{}\n")
    folder.write_atomic("manifest.json", b'{"a":\n1}\n')
    folder.publish(["manifest.json"])
    path = tmp_path / "runs" / "a" / "manifest.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in folder.local.iterdir()] == ["manifest.json"]
    assert folder.describe("manifest.json") == {
        "path": str(path),
        "bytes": 9,
        "lines": 2,
        "sha256": hashlib.sha256(b'{"a":\n1}\n').hexdigest(),
    }
    with pytest.raises(StorageError, match=r"errors\.jsonl"):
        folder.describe("errors.jsonl")


def test_a_file_uri_is_a_local_folder(tmp_path: Path) -> None:
    """`file://` needs no upload; escapes in it are read."""
    folder = OutputFolder(f"file://{tmp_path}/a%20b", tmp_path / "work")
    assert folder.local == tmp_path / "a b"
    assert not folder.is_remote


@pytest.mark.parametrize("name", ["results.jsonl", "errors.jsonl", "manifest.json"])
def test_a_foreign_file_is_never_overwritten(tmp_path: Path, memory: fsspec.AbstractFileSystem, name: str) -> None:
    """A new run refuses a folder that holds somebody's results, here or on the store."""
    (tmp_path / name).write_bytes(b"{}\n")
    memory.pipe_file(f"/bucket/out/{name}", b"")
    for place in (str(tmp_path), "memory://bucket/out/"):
        with pytest.raises(InputError, match=name) as caught:
            OutputFolder(place, tmp_path / "work").refuse_foreign()
        assert "--out" in (caught.value.hint or "")
    (tmp_path / name).write_bytes(b"")
    OutputFolder(str(tmp_path), tmp_path / "work").refuse_foreign()
    OutputFolder("memory://bucket/other", tmp_path / "work").refuse_foreign()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=name):
        OutputFolder(str(tmp_path), tmp_path / "work").refuse_foreign()


def test_a_store_gets_the_working_copies(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    """Files for a URI are written below the work folder and uploaded when asked; again is the same."""
    folder = OutputFolder("memory://bucket/out", tmp_path / "work")
    assert tmp_path / "work" in folder.local.parents
    for data in (b"1\n", b"1\n2\n"):
        folder.write_atomic("results.jsonl", data)
        folder.publish(["results.jsonl"])
        assert memory.cat_file("/bucket/out/results.jsonl") == data
    assert memory.find("/bucket") == ["/bucket/out/results.jsonl"]
    assert folder.describe("results.jsonl")["path"] == "memory://bucket/out/results.jsonl"


def test_a_store_that_shows_halves_gets_a_temporary_name(tmp_path: Path) -> None:
    """Where an upload is seen while it runs, it has another name until it is whole (field report 173)."""
    folder = OutputFolder(f"local://{tmp_path}/out", tmp_path / "work")
    folder.write_atomic("results.jsonl", b"1\n")
    folder.publish(["results.jsonl"])
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["results.jsonl"]
    (tmp_path / "out" / "results.jsonl").unlink()
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_bytes(b"a file in the way")
    with pytest.raises(StorageError, match="could not be uploaded") as caught:
        folder.publish(["results.jsonl"])
    assert str(folder.local) in (caught.value.hint or "")


def test_credentials_in_a_uri_are_refused(tmp_path: Path) -> None:
    """A secret in a URI would be stored and shown; the refusal does not repeat it."""
    with pytest.raises(InputError, match="credentials") as caught:
        OutputFolder("s3://KEY:S3CRET@bucket/out", tmp_path)
    assert "S3CRET" not in f"{caught.value.message} {caught.value.hint}"
    OutputFolder("memory://bucket/a@b", tmp_path)


@pytest.mark.parametrize("place", ["nosuchstore://bucket/out", "s3://bucket/out"])
def test_a_store_that_cannot_be_used_is_refused_before_anything(tmp_path: Path, place: str) -> None:
    """An unknown scheme or a missing package is told when the run is planned."""
    if place.startswith("s3") and find_spec("s3fs"):
        pytest.skip("s3fs is installed here")
    with pytest.raises(InputError) as caught:
        OutputFolder(place, tmp_path).refuse_foreign()
    assert caught.value.hint


def test_a_file_is_adopted_whole(tmp_path: Path) -> None:
    """A finished file moves into the folder; nothing stays behind."""
    source = tmp_path / "bad.jsonl"
    source.write_bytes(b"{}\n")
    folder = OutputFolder(str(tmp_path / "out"), tmp_path)
    folder.adopt_file(source, "errors.jsonl")
    assert (tmp_path / "out" / "errors.jsonl").read_bytes() == b"{}\n"
    assert not source.exists()


def test_a_file_is_adopted_from_another_disk(tmp_path: Path) -> None:
    """Across file systems it is copied, synced and renamed."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    source = shared / f"batchctl-test-{tmp_path.name}-{tmp_path.parent.name}"
    source.write_bytes(b"{}\n")
    folder = OutputFolder(str(tmp_path / "out"), tmp_path)
    folder.adopt_file(source, "errors.jsonl")
    assert [entry.name for entry in folder.local.iterdir()] == ["errors.jsonl"]
    assert (folder.local / "errors.jsonl").read_bytes() == b"{}\n"
    assert not source.exists()


@pytest.mark.parametrize("name", ["a", "nightly-2026.12_01", "0", "A" * 100])
def test_a_run_name_is_accepted(name: str) -> None:
    """Names that are folders everywhere."""
    check_run_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-x", "a/b", "../x", "a b", "ü", "a\n", "A" * 101, "a\0"])
def test_a_run_name_is_refused(name: str) -> None:
    """Names that could leave the state folder or not be made."""
    with pytest.raises(InputError) as caught:
        check_run_name(name)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("state", "folder"), [("state/batchctl.db", "state/batchctl/n"), ("x/state", "x/state.runs/n")]
)
def test_work_lives_beside_the_state_file(state: str, folder: str) -> None:
    """The folder is told from the state file and never is it; nothing is made."""
    assert workdir(Path(state), "n") == Path(folder)
