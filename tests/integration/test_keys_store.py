"""The key store on a real file, shared with real other processes, and the command that manages it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest
from typer.testing import CliRunner, Result

from appliance.cli import keys as cli
from appliance.security.keys import ALL_SCOPES, KeyScope, KeyStore, KeyStoreError

INFER: frozenset[KeyScope] = frozenset({"infer"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[[], KeyStore]]:
    """Makes stores over the same file, as different processes would; closes them."""
    stores: list[KeyStore] = []

    def make() -> KeyStore:
        stores.append(KeyStore(path, lambda: 1_700_000_000.0))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], KeyStore]) -> KeyStore:
    return open_store()


def _secret(store: KeyStore, name: str = "laptop") -> str:
    return store.create(name, INFER)[1].get_secret_value()


def _in_another_process(path: Path, statement: str) -> str:
    program = (
        "import sys, time; from pathlib import Path; from appliance.security.keys import KeyStore\n"
        f"store = KeyStore(Path(sys.argv[1]), time.time)\n{statement}"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def test_a_missing_store_means_no_keys_and_reading_makes_no_file(store: KeyStore, path: Path) -> None:
    assert not store.has_keys()
    assert store.list() == ()
    assert store.authenticate("sk-appl-x") is None
    store.reload()
    assert not path.parent.exists()


def test_a_key_is_known_by_its_secret_and_by_nothing_else(store: KeyStore) -> None:
    record, secret = store.create("laptop", ALL_SCOPES, requests_per_minute=60, max_concurrent=2)
    assert store.authenticate(secret.get_secret_value()) == record
    assert (record.requests_per_minute, record.max_concurrent, record.created_at) == (60, 2, 1_700_000_000.0)
    for wrong in ("", secret.get_secret_value()[:-1], secret.get_secret_value() + "A", record.id, "\xff", "\ud800"):
        assert store.authenticate(wrong) is None


def test_a_secret_is_256_random_bits_behind_a_fixed_prefix(store: KeyStore) -> None:
    secrets = {_secret(store, f"k{number}") for number in range(5)}
    assert len(secrets) == 5
    for secret in secrets:
        assert secret.startswith("sk-appl-")
        assert len(secret.removeprefix("sk-appl-")) == 43  # 256 bits in base64url


def test_no_secret_is_stored_or_shown_by_any_object(store: KeyStore, path: Path) -> None:
    record, secret = store.create("laptop", INFER)
    plain = secret.get_secret_value()
    shown = repr(store) + repr(record) + str(record) + repr(secret) + str(secret) + repr(store.list())
    assert plain not in shown
    assert hashlib.sha256(plain.encode()).hexdigest() not in shown
    for file in path.parent.iterdir():
        content = file.read_bytes()
        assert plain.encode() not in content
        assert plain.removeprefix("sk-appl-").encode() not in content


def test_the_files_are_for_their_owner_alone(store: KeyStore, path: Path) -> None:
    before = os.umask(0)
    try:
        _secret(store)
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.name for file in path.parent.iterdir()} == {"keys.db", "keys.db-wal", "keys.db-shm"}
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_directory_that_others_could_write_to_is_closed_to_them(store: KeyStore, path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    _secret(store)
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_a_store_is_in_wal_mode_and_carries_its_schema_version(store: KeyStore, path: Path) -> None:
    _secret(store)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert (db.pragma("journal_mode"), db.pragma("user_version")) == ("wal", 2)
    db.close()


def test_a_store_of_the_first_version_is_brought_up_to_date_and_keeps_its_keys(
    open_store: Callable[[], KeyStore], path: Path
) -> None:
    secret = _secret(open_store())
    db = apsw.Connection(str(path))
    db.execute("ALTER TABLE keys DROP COLUMN local_only; ALTER TABLE keys DROP COLUMN redact; PRAGMA user_version = 1")
    db.close()
    store = open_store()
    record = store.authenticate(secret)
    assert record is not None
    assert (record.local_only, record.redact) == (False, frozenset())
    store.create("private", frozenset({"infer"}), local_only=True, redact=frozenset({"email", "card"}))
    kept = next(key for key in open_store().list() if key.name == "private")
    assert (kept.local_only, kept.redact) == (True, frozenset({"email", "card"}))


def test_a_revoked_key_is_refused_but_still_listed(store: KeyStore) -> None:
    first, second = _secret(store, "first"), _secret(store, "second")
    assert store.authenticate(first) is not None
    revoked = store.revoke("first")
    assert revoked.revoked_at == 1_700_000_000.0
    assert store.authenticate(first) is None
    assert store.authenticate(second) is not None
    assert [record.name for record in store.list()] == ["first", "second"]
    assert store.revoke(revoked.id) == revoked


def test_revoking_the_last_key_does_not_open_the_daemon(store: KeyStore) -> None:
    _secret(store)
    store.revoke("laptop")
    assert store.has_keys()


def test_a_name_is_taken_while_its_key_is_active(store: KeyStore) -> None:
    _secret(store)
    with pytest.raises(KeyStoreError, match="already named"):
        _secret(store)
    store.revoke("laptop")
    _secret(store)
    assert len(store.list()) == 2


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 65, "sk-appl-abc", "key_1", "\x1b[2J"])
def test_a_name_is_printable_and_no_secret(store: KeyStore, path: Path, name: str) -> None:
    with pytest.raises(KeyStoreError, match="name"):
        _secret(store, name)
    assert not path.exists()


def test_limits_and_scopes_are_checked(store: KeyStore) -> None:
    with pytest.raises(KeyStoreError, match="scopes"):
        store.create("a", frozenset())
    for limit in (0, -1, 2**40):
        with pytest.raises(KeyStoreError, match="requests_per_minute"):
            store.create("a", INFER, requests_per_minute=limit)
        with pytest.raises(KeyStoreError, match="max_concurrent"):
            store.create("a", INFER, max_concurrent=limit)


def test_an_unknown_key_cannot_be_revoked(store: KeyStore) -> None:
    with pytest.raises(KeyStoreError, match="no keys"):
        store.revoke("laptop")
    _secret(store)
    with pytest.raises(KeyStoreError, match="'desktop'"):
        store.revoke("desktop")


def test_what_another_process_does_counts_at_once(store: KeyStore, path: Path) -> None:
    assert not store.has_keys()
    make = "print(store.create('remote', frozenset({'infer'}))[1].get_secret_value())"
    secret = _in_another_process(path, make)
    assert store.has_keys()
    assert store.authenticate(secret) is not None
    second = _in_another_process(path, make.replace("remote", "second"))
    assert store.authenticate(second) is not None
    _in_another_process(path, "store.revoke('remote')")
    assert store.authenticate(secret) is None


def test_processes_that_create_the_store_together_lose_no_key(path: Path, store: KeyStore) -> None:
    program = (
        "import sys, time; from pathlib import Path; from appliance.security.keys import KeyStore\n"
        "sys.stdin.readline(); KeyStore(Path(sys.argv[1]), time.time).create(sys.argv[2], frozenset({'infer'}))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, path, f"k{number}"], stdin=subprocess.PIPE)
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait(timeout=30) for process in processes] == [0] * 4
    assert {record.name for record in store.list()} == {f"k{number}" for number in range(4)}
    assert not list(path.parent.glob(".keys.db.*"))


def _damage_text(path: Path) -> None:
    path.write_bytes(b"no database at all, though quite long\n" * 200)


def _damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def _damage_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def _damage_schema(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 99")
    db.close()


def _damage_table(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("DROP TABLE keys")
    db.close()


def _damage_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _damage_text,
        _damage_empty,
        _damage_half,
        _damage_schema,
        _damage_table,
        _damage_directory,
    ],
)
def test_a_store_that_cannot_be_trusted_is_an_error_and_never_no_keys(
    open_store: Callable[[], KeyStore], path: Path, damage: Callable[[Path], None]
) -> None:
    maker = open_store()
    secret = _secret(maker)
    maker.close()
    damage(path)
    for store in (open_store(), open_store()):
        for question in (store.has_keys, store.list, store.reload, lambda store=store: store.authenticate(secret)):
            with pytest.raises(KeyStoreError, match=r"keys\.db"):
                question()
        with pytest.raises(KeyStoreError, match=r"keys\.db"):
            store.create("more", INFER)


def test_a_key_with_a_scope_that_nobody_knows_is_an_error(store: KeyStore, path: Path) -> None:
    secret = _secret(store)
    db = apsw.Connection(str(path))
    db.execute("UPDATE keys SET scopes = 'infer,root'")
    db.close()
    with pytest.raises(KeyStoreError, match="root"):
        store.authenticate(secret)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_that_may_not_be_read_is_an_error(open_store: Callable[[], KeyStore], path: Path) -> None:
    maker = open_store()
    _secret(maker)
    maker.close()
    path.chmod(0)
    with pytest.raises(KeyStoreError):
        open_store().has_keys()


def test_a_store_damaged_under_a_running_daemon_is_noticed(store: KeyStore, path: Path) -> None:
    secret = _secret(store)
    replacement = path.with_name("other")
    replacement.write_bytes(b"no database")
    replacement.rename(path)
    with pytest.raises(KeyStoreError):
        store.authenticate(secret)


def test_a_store_that_vanishes_is_an_error_until_a_reload_accepts_it(store: KeyStore, path: Path) -> None:
    _secret(store)
    for file in list(path.parent.iterdir()):
        file.unlink()
    for _ in range(2):
        with pytest.raises(KeyStoreError, match="gone"):
            store.has_keys()
    store.reload()
    assert not store.has_keys()


def test_a_store_that_was_replaced_is_read_anew(open_store: Callable[[], KeyStore], path: Path) -> None:
    store, other = open_store(), open_store()
    old = _secret(store)
    for file in list(path.parent.iterdir()):
        file.unlink()
    new = _secret(other)
    assert store.authenticate(new) is not None
    assert store.authenticate(old) is None


def test_the_log_of_a_deleted_store_is_not_played_into_a_new_one(
    open_store: Callable[[], KeyStore], path: Path
) -> None:
    first = open_store()
    old = _secret(first)
    leftover = path.with_name("keys.db-wal").read_bytes()  # as a killed process would leave it
    first.close()
    path.unlink()
    path.with_name("keys.db-wal").write_bytes(leftover)
    second = open_store()
    new = _secret(second, "new")
    assert [record.name for record in second.list()] == ["new"]
    assert second.authenticate(new) is not None
    assert second.authenticate(old) is None


CREATE_WITHOUT_ROOM = """
import resource, signal, sys, time
from pathlib import Path
from appliance.security.keys import KeyStore, KeyStoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    KeyStore(Path(sys.argv[1]), time.time).create("first", frozenset({"infer"}))
except KeyStoreError as error:
    print(error)
"""


@pytest.mark.parametrize("room_bytes", [0, 4096, 12288, 20480])
def test_a_store_without_room_leaves_nothing_behind(path: Path, store: KeyStore, room_bytes: int) -> None:
    said = subprocess.run(
        [sys.executable, "-c", CREATE_WITHOUT_ROOM, str(path), str(room_bytes)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "cannot write the key store" in said
    assert not list(path.parent.glob(".keys.db*"))
    _secret(store, "later")  # there is room again
    assert [record.name for record in store.list()] == ["later"]


# The command


@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_a_secret_that_nobody_saw_is_no_key(path: Path, store: KeyStore, output: str) -> None:
    command = f"{sys.executable} -m appliance --state-dir {path.parent} keys create {output}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "key" in done.stderr
    assert all(record.revoked_at is not None for record in store.list())


def _run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments), obj=SimpleNamespace(state_dir=path.parent))


def test_create_prints_the_secret_alone_and_explains_beside_it(path: Path, store: KeyStore) -> None:
    done = _run(path, "create", "--name", "laptop", "--rpm", "60", "--concurrent", "2")
    assert done.exit_code == 0, done.output
    record = store.authenticate(done.stdout.removesuffix("\n"))
    assert record is not None
    assert (record.name, record.scopes, record.requests_per_minute, record.max_concurrent) == ("laptop", INFER, 60, 2)
    assert record.id in done.stderr
    assert done.stdout.strip() not in done.stderr


def test_a_first_key_needs_no_name_and_a_second_one_does(path: Path, store: KeyStore) -> None:
    assert _run(path, "create").exit_code == 0
    again = _run(path, "create")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "another name" in again.stderr
    assert [record.name for record in store.list()] == ["default"]


def test_create_takes_several_scopes_and_prints_json(path: Path, store: KeyStore) -> None:
    done = _run(path, "create", "--name", "ops", "--scope", "admin", "--scope", "metrics", "--json")
    made = json.loads(done.stdout)
    assert made["scopes"] == ["admin", "metrics"]
    assert store.authenticate(made["secret"]) is not None


def test_list_shows_every_key_and_no_secret(path: Path) -> None:
    assert "No key" in _run(path, "list").stderr
    secret = _run(path, "create", "--name", "laptop").stdout.strip()
    _run(path, "create", "--name", "old")
    _run(path, "revoke", "old")
    table = _run(path, "list").stdout
    assert [line.split()[1] for line in table.splitlines()] == ["NAME", "laptop", "old"]
    listed = json.loads(_run(path, "list", "--json").stdout)
    assert [(key["name"], key["revoked_at"] is None) for key in listed] == [("laptop", True), ("old", False)]
    assert secret not in table + json.dumps(listed)


def test_revoking_the_last_key_says_what_that_means(path: Path, store: KeyStore) -> None:
    secret = _run(path, "create", "--name", "laptop").stdout.strip()
    done = _run(path, "revoke", "laptop")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "every request is refused" in done.stderr
    assert store.authenticate(secret) is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["create", "--rpm", "many"], 2),
        (["create", "--name", "a", "--scope", "root"], 2),
        (["create", "--name", "a", "--rpm", "0"], 2),
        (["create", "--name", " a"], 1),
        (["revoke", "nobody"], 1),
    ],
)
def test_a_mistake_is_told_on_standard_error(path: Path, arguments: list[str], code: int) -> None:
    done = _run(path, *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr
