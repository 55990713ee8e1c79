"""Where a run is put together: a hidden directory beside the output, renamed once at the end."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gapscope.errors import GapscopeError

# Held while the directory is in use; a killed process lets go of it.
LOCK = ".lock"
# Errors after which the same command is expected again.
GOES_ON = ("worker-died", "cluster-lost", "cluster-lost-workers")
# Ends the name of a run that stepped aside for its successor.
_OLD = "-old"
# Bytes of a file name that file systems allow, less what is put around the name of the run.
_NAME_BYTES = 200


def is_run(path: Path) -> bool:
    """Whether a directory is a run of ours, which `force` may replace."""
    return (path / "manifest.json").is_file() and (path / "run.duckdb").is_file()


def check_target(out: Path, *, force: bool) -> None:
    """Refuse an output that cannot be written, or that is not ours to replace."""
    text = str(out.absolute())
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GapscopeError(
            "bad-path", f"`{out}` is not UTF-8, which DuckDB needs", "choose another with `-o`"
        ) from error
    # DuckDB takes one for a separator of directories, the other for the end of the path.
    for character in ("\\", "?") if os.sep == "/" else ():
        if character in text:
            raise GapscopeError(
                "bad-path",
                f"`{out}`: DuckDB cannot write where a path has a `{character}`",
                "choose another with `-o`",
            )
    try:
        present = out.is_symlink() or out.exists()
    except OSError as error:
        raise _cannot_write(out, error) from error
    if not present:
        return
    if not force:
        raise _exists(out)
    if out.is_symlink():
        raise GapscopeError(
            "not-a-run",
            f"`{out}` is a symbolic link, so `-f` does not replace it",
            "name the directory that it leads to, or choose another with `-o`",
        )
    if not is_run(out):
        raise GapscopeError(
            "not-a-run", f"`{out}` is not a run, so `-f` does not replace it", "choose `-o`"
        )


class WorkPlace:
    """The unfinished run. `publish` or `discard` ends its life, or `leave` keeps it for another.

    `adopt` looks at what killed ingests of the same output left and says how much each is worth;
    the best is gone on with where that is more than nothing, the others are removed.
    """

    def __init__(self, out: Path, adopt: Callable[[Path], int] | None = None) -> None:
        parent = out.absolute().parent
        prefix = _prefix(out)
        self.path = _new_name(parent, prefix)
        self._made_parents: list[Path] = []
        self._lock: int | None = None
        try:
            self._make_parents(parent)
            self._make(prefix)
        except OSError as error:
            self.discard()
            raise _cannot_write(parent, error) from error
        if adopt is not None:
            self._adopt(prefix, adopt)
        _sweep(out, prefix, self.path)

    def publish(self, out: Path, *, force: bool) -> None:
        """One rename; an older run steps aside first and is removed after."""
        old = None
        if out.is_symlink() or out.exists():
            # Another ingest may have finished meanwhile.
            if not force or out.is_symlink() or not is_run(out):
                raise _exists(out)
            old = self.path.with_name(self.path.name + _OLD)
            out.rename(old)
        try:
            self.path.rename(out)
        except BaseException as error:
            if old is not None:
                with contextlib.suppress(OSError):
                    old.rename(out)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise _exists(out) from error
            raise
        # Only now: what a kill leaves has its lock until it is a run.
        (out / LOCK).unlink(missing_ok=True)
        self._unlock()
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def leave(self) -> None:
        """Keep the directory: the next ingest of the same output goes on from it."""
        self._unlock()

    def discard(self) -> None:
        """Remove the directory, and the parents that were made for it."""
        # Still locked: another ingest must not go on from what is being removed.
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()
        # Some network file systems keep a file while it is open.
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in reversed(self._made_parents):
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _adopt(self, prefix: str, worth: Callable[[Path], int]) -> None:
        """Take the place of the killed ingest that got furthest."""
        left = [path for path in _unfinished(self.path.parent, prefix) if path != self.path]
        for path in sorted(left, key=worth, reverse=True):
            if not worth(path):
                return
            with contextlib.suppress(OSError):
                lock = _locked(path / LOCK, create=False)
                if lock is not None:
                    shutil.rmtree(self.path, ignore_errors=True)
                    self._unlock()
                    self.path, self._lock = path, lock
                    return

    def _make(self, prefix: str) -> None:
        """Make and lock the directory; others may sweep it away before it is locked."""
        for _ in range(3):
            self.path = _new_name(self.path.parent, prefix)
            self.path.mkdir()
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                self._lock = _locked(self.path / LOCK, create=True)
                return
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _make_parents(self, parent: Path) -> None:
        missing = []
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self._made_parents.append(directory)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _new_name(parent: Path, prefix: str) -> Path:
    return parent / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"


def has_unfinished(out: Path) -> bool:
    """Whether an ingest that did not end left something beside `out`."""
    return bool(_unfinished(out.absolute().parent, _prefix(out)))


def _unfinished(parent: Path, prefix: str) -> list[Path]:
    return [
        entry
        for entry in parent.iterdir()
        if entry.name.startswith(prefix)
        and not entry.name.endswith(_OLD)
        and not entry.is_symlink()
        and (entry / LOCK).is_file()
    ]


def _prefix(out: Path) -> str:
    name = out.name
    if len(name.encode("utf-8")) > _NAME_BYTES:
        name = hashlib.blake2b(name.encode("utf-8"), digest_size=8).hexdigest()
    return f".{name}.tmp-"


def _sweep(out: Path, prefix: str, own: Path) -> None:
    """Remove what killed ingests of the same output left: their locks are free."""
    with contextlib.suppress(OSError):
        for entry in own.parent.iterdir():
            if not entry.name.startswith(prefix) or entry == own or entry.is_symlink():
                continue
            if entry.name.endswith(_OLD):
                if is_run(out):
                    shutil.rmtree(entry, ignore_errors=True)
                continue
            with contextlib.suppress(OSError):
                if not (entry / LOCK).exists():
                    # Killed before it could lock. What is not empty stays.
                    entry.rmdir()
                    continue
                lock = _locked(entry / LOCK, create=False)
                if lock is not None:
                    shutil.rmtree(entry, ignore_errors=True)
                    os.close(lock)


@contextlib.contextmanager
def held(lock: Path) -> Iterator[bool]:
    """Hold a lock that outlives no process; whether nobody else holds it."""
    descriptor = None
    for _ in range(3):
        try:
            lock.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = _locked(lock, create=True)
        except BlockingIOError:
            yield False
            return
        except FileNotFoundError:
            # Removed by who held it until now.
            continue
        break
    try:
        yield True
    finally:
        lock.unlink(missing_ok=True)
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, *, create: bool) -> int | None:
    """Descriptor of the file, locked for as long as it is open; None without such locks.

    FileNotFoundError when there is no such file, or none any more; BlockingIOError when another
    process holds it.
    """
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed it since it was opened.
        if path.stat().st_ino != os.fstat(descriptor).st_ino:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        os.close(descriptor)
        # Some network file systems have no locks: then nothing is ever swept there.
        if create and not isinstance(error, (BlockingIOError, FileNotFoundError)):
            return None
        raise
    return descriptor


def _exists(out: Path) -> GapscopeError:
    return GapscopeError(
        "exists", f"`{out}` exists", "replace it with `-f`, or choose another with `-o`"
    )


def _cannot_write(place: Path, error: OSError) -> GapscopeError:
    return GapscopeError(
        "cannot-write",
        f"`{place}` cannot be written: {error.strerror}",
        "choose another place with `-o`",
    )
