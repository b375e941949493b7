"""API keys: `keys.db`, who holds which scope, and the check of a presented secret.

A key is shown once, when it is made; only its SHA-256 is stored. A fast hash is right here: a slow one (bcrypt,
Argon2) makes guessing a *weak* secret dear, and nobody guesses 256 random bits at any speed.

The file is the truth and other processes (`appliance keys`) write to it: each question first asks SQLite whether
another connection has committed (`PRAGMA data_version`, microseconds), so that a new or revoked key counts from
the next request on. What cannot be read is an error, never "there are no keys": that would open the daemon.

Knows no HTTP. One thread at a time may use a store.
"""

import contextlib
import hashlib
import hmac
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

import apsw
from pydantic import SecretStr

from appliance.protocol import Private
from appliance.security import key_file

KeyScope = Literal["infer", "admin", "metrics"]
ALL_SCOPES: Final[frozenset[KeyScope]] = frozenset(get_args(KeyScope))

LEAST_FREE_BYTES = 256 * 1024  # what a store and its log take, and some
SECRET_PREFIX = "sk-appl-"  # noqa: S105 - what every secret starts with, so that scanners find a leaked one
WRITE_BUSY_TIMEOUT_MS = 5000
MAX_NAME_CHARS = 64


class KeyStoreError(Exception):
    """What could not be done, or why the store cannot be trusted to say which keys there are.

    The message is for the daemon's owner: it may name files, and never a secret.
    """


@dataclass(frozen=True, slots=True)
class KeyRecord:
    id: str
    name: str
    scopes: frozenset[KeyScope]
    requests_per_minute: int | None  # None: the daemon's default
    max_concurrent: int | None
    created_at: float  # Unix seconds, as is `revoked_at`
    revoked_at: float | None = None
    local_only: bool = False  # its requests never leave this machine
    redact: frozenset[Private] = frozenset()  # what is taken out of requests that leave it


class KeyStore:
    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """`clock` gives Unix seconds. Nothing is opened or created before it is needed."""
        self.path = path
        self._clock = clock
        self._db: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of what `_db` has open
        self._seen = False  # the file was there: should it vanish, that is no news of "no keys"
        self._data_version = -1
        self._records: tuple[KeyRecord, ...] = ()
        self._active: tuple[tuple[bytes, KeyRecord], ...] = ()

    def __repr__(self) -> str:
        return f"KeyStore({str(self.path)!r})"

    def has_keys(self) -> bool:
        """Whether a key was ever made. A revoked one counts: revoking the last key must not open the daemon."""
        return bool(self.list())

    def list(self) -> tuple[KeyRecord, ...]:
        """Every key, the revoked ones too, oldest first."""
        self._refresh()
        return self._records

    def authenticate(self, secret: str) -> KeyRecord | None:
        """The active key with this secret. Takes the same time whichever key matches, or none."""
        self._refresh()
        digest = _digest(secret)
        found: KeyRecord | None = None
        for stored, record in self._active:
            if hmac.compare_digest(stored, digest):
                found = record  # and no early exit: the time must not tell the place
        return found

    def reload(self) -> None:
        """Forget what was read and read anew; also accepts that the file is gone."""
        self.close()
        self._seen = False
        self._refresh()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None
        self._file = None
        self._records = ()
        self._active = ()

    def create(
        self,
        name: str,
        scopes: frozenset[KeyScope],
        *,
        requests_per_minute: int | None = None,
        max_concurrent: int | None = None,
        local_only: bool = False,
        redact: frozenset[Private] = frozenset(),
    ) -> tuple[KeyRecord, SecretStr]:
        """A new key and its secret, which cannot be shown again. Raises `KeyStoreError` for what cannot be."""
        _check_name(name)
        if not scopes or not scopes <= ALL_SCOPES:
            raise KeyStoreError(f"scopes: give at least one of {', '.join(get_args(KeyScope))}")
        for field, value in (("requests_per_minute", requests_per_minute), ("max_concurrent", max_concurrent)):
            if value is not None and not 1 <= value < 2**31:
                raise KeyStoreError(f"{field}: must be at least 1; leave it out for the daemon's default")
        secret = SECRET_PREFIX + secrets.token_urlsafe(32)
        record = KeyRecord(
            id=f"key_{secrets.token_hex(6)}",
            name=name,
            scopes=scopes,
            requests_per_minute=requests_per_minute,
            max_concurrent=max_concurrent,
            created_at=self._clock(),
            local_only=local_only,
            redact=redact,
        )
        with self._writing(create=True) as db:
            try:
                db.execute(
                    "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
                    (
                        record.id,
                        name,
                        _digest(secret),
                        ",".join(sorted(scopes)),
                        requests_per_minute,
                        max_concurrent,
                        record.created_at,
                        int(local_only),
                        ",".join(sorted(redact)),
                    ),
                )
            except apsw.ConstraintError:
                raise KeyStoreError(
                    f"an active key is already named {name!r}: choose another name, or revoke that one"
                ) from None
        return record, SecretStr(secret)

    def revoke(self, id_or_name: str) -> KeyRecord:
        """Ends a key. An id comes before a name. One that was revoked already stays as it is."""
        with self._writing(create=False) as db:
            records = _read(db)[0]
            active = [record for record in records if record.revoked_at is None]
            found = [record for record in records if record.id == id_or_name]
            found += [record for record in active if record.name == id_or_name]
            if not found:
                raise KeyStoreError(f"no active key has the id or name {id_or_name!r}: see `appliance keys list`")
            record = found[0]
            if record.revoked_at is None:
                record = replace(record, revoked_at=self._clock())
                db.execute("UPDATE keys SET revoked_at = ? WHERE id = ?", (record.revoked_at, record.id))
            return record

    def _refresh(self) -> None:
        """Brings the records up to date with the file."""
        try:
            db = self._connect()
            if db is None:
                return
            version = db.pragma("data_version")
            if version != self._data_version:
                self._records, self._active = _read(db)
                self._data_version = version
        except (apsw.Error, OSError, ValueError) as error:
            raise KeyStoreError(f"{self.path}: cannot read the key store: {error}") from error

    def _connect(self) -> apsw.Connection | None:
        """The open database, opened anew when another file has taken its place. None: there is no file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            if not self._seen:
                return None
            raise KeyStoreError(
                f"{self.path}: the key store is gone while the daemon runs; put it back, or to go on without keys, "
                "reload (SIGHUP) or restart"
            ) from None
        self._seen = True
        file = (status.st_dev, status.st_ino)
        if self._db is None or file != self._file:
            db = key_file.open_checked(self.path)
            self.close()
            self._db, self._file, self._data_version = db, file, -1
        return self._db

    def _disk_is_full(self) -> bool:
        """SQLite calls it an I/O error."""
        with contextlib.suppress(OSError):
            return shutil.disk_usage(self.path.parent).free < LEAST_FREE_BYTES
        return False

    @contextlib.contextmanager
    def _writing(self, *, create: bool) -> Iterator[apsw.Connection]:
        """One write transaction; afterwards this store knows what it wrote."""
        try:
            if create and not self.path.exists():
                key_file.create(self.path)
            db = self._connect()
            if db is None:
                raise KeyStoreError("there are no keys: `appliance keys create` makes one")
            self.path.chmod(0o600)  # a copy put back may have lost it
            db.set_busy_timeout(WRITE_BUSY_TIMEOUT_MS)
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                db.set_busy_timeout(key_file.READ_BUSY_TIMEOUT_MS)
            self._data_version = -1  # SQLite counts other connections' commits only
        except (apsw.Error, OSError, ValueError) as error:
            why = "the disk is full" if self._disk_is_full() else error
            raise KeyStoreError(f"{self.path}: cannot write the key store: {why}") from error


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable() or name != name.strip():
        raise KeyStoreError(f"name: give 1 to {MAX_NAME_CHARS} printable characters without spaces at the ends")
    if name.startswith((SECRET_PREFIX, "key_")):
        raise KeyStoreError(f"name: must not look like a secret ({SECRET_PREFIX}…) or an id (key_…)")


def _read(db: apsw.Connection) -> tuple[tuple[KeyRecord, ...], tuple[tuple[bytes, KeyRecord], ...]]:
    """Every record, and the active ones with their digests."""
    records: list[KeyRecord] = []
    active: list[tuple[bytes, KeyRecord]] = []
    rows = db.execute(
        "SELECT digest, id, name, scopes, requests_per_minute, max_concurrent, created_at, revoked_at, local_only,"
        " redact FROM keys ORDER BY created_at, rowid"
    )
    for digest, id_, name, scopes, rpm, max_concurrent, created_at, revoked_at, local_only, redact in rows:
        known: frozenset[KeyScope] = frozenset(scope for scope in ALL_SCOPES if scope in scopes.split(","))
        if len(known) != len(scopes.split(",")):
            raise ValueError(f"key {id_} has unknown scopes {scopes!r}")
        record = KeyRecord(
            id=id_,
            name=name,
            scopes=known,
            requests_per_minute=rpm,
            max_concurrent=max_concurrent,
            created_at=created_at,
            revoked_at=revoked_at,
            local_only=bool(local_only),
            redact=frozenset(pattern for pattern in get_args(Private) if pattern in redact.split(",")),
        )
        records.append(record)
        if revoked_at is None:
            active.append((digest, record))
    return tuple(records), tuple(active)
