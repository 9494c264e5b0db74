"""The output folder of a run: a local one, or the working copy of one on an object store."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from batchctl.core.errors import InputError, StorageError
from batchctl.files.durable import make_folder, private, replace, storage

COPY = 1 << 20
OWN_FILES = ("results.jsonl", "errors.jsonl", "manifest.json")
_WHOLE_PUTS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"})
"""Stores where an upload shows only when it is whole; a move would copy it once more."""


class OutputFolder:
    """Where a run's result files go. Making the object touches nothing.

    Args:
        place: a folder, or a URI fsspec knows (`file://`, `s3://`, `memory://`).
        work: the run's working folder; files for a URI are written below it and uploaded by `publish`.

    Raises:
        InputError: the URI holds credentials.
    """

    def __init__(self, place: str, work: Path) -> None:
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", place)
        self._scheme = scheme.group(1).lower() if scheme else ""
        if scheme and "@" in re.split(r"[/?#]", place[scheme.end() :], maxsplit=1)[0]:
            raise InputError(
                "the output URI holds credentials, which would be stored and shown",
                hint="leave them out and give them to the store's own variables (such as AWS_ACCESS_KEY_ID)",
            )
        self.place = place.rstrip("/") or "/"
        if not scheme:
            self.local = Path(place)
        elif self._scheme == "file":
            self.local = Path(unquote(urlsplit(place).path))
        else:
            self.local = work / "out"

    @property
    def is_remote(self) -> bool:
        """Whether the files live on a store and `local` is their working copy."""
        return self._scheme not in ("", "file")

    def refuse_foreign(self) -> None:
        """Refuse a folder that holds result files already; only a new run may ask.

        Raises:
            InputError: it does, or the store cannot be reached.
        """
        for name in OWN_FILES:
            path = self.local / name
            if path.is_symlink() or (path.exists() and (not path.is_file() or path.stat().st_size)):
                raise _foreign(str(path))
        if self.is_remote:
            system = self._system()
            for name in OWN_FILES:
                try:
                    there = system.exists(f"{self.place}/{name}")
                except Exception as error:  # noqa: BLE001  # each store raises its own kinds
                    raise InputError(
                        f"{self.place} cannot be reached: {_said(error)}", hint="check the URI and its credentials"
                    ) from None
                if there:
                    raise _foreign(f"{self.place}/{name}")

    def adopt_file(self, source: Path, name: str) -> None:
        """Move a finished file into the folder, whole or not at all, also from another disk."""
        make_folder(self.local)
        target = self.local / name
        with storage(target):
            if source.stat().st_dev == self.local.stat().st_dev:
                replace(source, target)
                return
            part = target.with_name(f".{name}.part")
            with source.open("rb") as old, open(part, "wb", opener=private) as new:
                shutil.copyfileobj(old, new, COPY)
                new.flush()
                os.fsync(new.fileno())
            replace(part, target)
            source.unlink()

    def write_atomic(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        make_folder(self.local)
        target = self.local / name
        part = target.with_name(f".{name}.part")
        with storage(target):
            with open(part, "wb", opener=private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            replace(part, target)

    def describe(self, name: str) -> dict[str, Any]:
        """Place, size, line count and SHA-256 of a file, for the manifest."""
        path = self.local / name
        digest, size, lines = hashlib.sha256(), 0, 0
        with storage(path), path.open("rb", buffering=0) as file:
            while block := file.read(COPY):
                digest.update(block)
                size += len(block)
                lines += block.count(b"\n")
        shown = f"{self.place}/{name}" if self.is_remote else str(path)
        return {"path": shown, "bytes": size, "lines": lines, "sha256": digest.hexdigest()}

    def publish(self, names: Iterable[str]) -> None:
        """Upload the working copies, where the folder is on a store.

        Raises:
            StorageError: the store refused; the working copies are whole and can be uploaded again.
        """
        if not self.is_remote:
            return
        system = self._system()
        for name in names:
            target = f"{self.place}/{name}"
            try:
                self._upload(system, self.local / name, target)
            except Exception as error:  # noqa: BLE001  # each store raises its own kinds
                raise StorageError(
                    f"{target} could not be uploaded: {_said(error)}",
                    hint=f"the results are whole in {self.local}; run the same command again to upload them",
                ) from None

    def _upload(self, system: Any, source: Path, target: str) -> None:
        if self._scheme in _WHOLE_PUTS:
            system.put_file(str(source), target)
            return
        system.makedirs(self.place, exist_ok=True)
        system.put_file(str(source), f"{target}.part")
        system.mv(f"{target}.part", target)

    def _system(self) -> Any:
        from fsspec.core import url_to_fs

        try:
            return url_to_fs(self.place)[0]
        except ImportError as error:
            raise InputError(
                f"{self._scheme}:// needs a package that is not installed: {error}",
                hint="for S3: `pip install 'batchctl[s3]'`",
            ) from None
        except ValueError as error:
            raise InputError(f"{self.place}: {error}", hint="an output is a folder or a URI such as s3://…") from None


def _foreign(path: str) -> InputError:
    return InputError(
        f"{path} is there already and belongs to no run of this name",
        hint="choose another --out folder, or move the file away",
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
