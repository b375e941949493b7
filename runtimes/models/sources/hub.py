"""A file of Hugging Face, or of whatever speaks its API at HF_ENDPOINT.

`huggingface_hub` knows addresses, tokens, redirects and errors; the transfer is ours, for two reasons. Its own
download throws a partial file away, and with Xet it hands the connection to native code, where no gate can see it.
Plain HTTPS with ranges reaches every file, resumes to the byte, and asks the gate before every request and redirect.

`huggingface_hub` is imported when it is needed: the daemon starts without it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runtimes.models.errors import ChecksumMismatch, DownloadFailed, ModelError
from runtimes.models.sources import Gate, HubFile, Surroundings

if TYPE_CHECKING:
    import httpx2

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SPLIT: Final = re.compile(r"-\d{5}-of-(\d{5})\.gguf$", re.IGNORECASE)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")
_ATTEMPTS: Final = 3  # in a row without a byte, when nothing is here: it is more likely wrong than busy
_ATTEMPTS_ONCE_BEGUN: Final = 7  # with the waits below about 35 seconds: a router's restart
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 10.0
_READ_TIMEOUT_S: Final = 30.0
_USER_AGENT: Final = "inference-appliance"
_RETRIED_STATUSES: Final = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class _Description:
    """What the hub says of a file before it sends it."""

    url: str  # of exactly this version
    size_bytes: int
    sha256: str


class _PassingError(Exception):
    """Something that may work the next time."""


def fetch(source: HubFile, destination: Path, sha256: str | None, surroundings: Surroundings) -> tuple[Path, str]:
    """Bring the file to a path beside `destination`, going on where an earlier attempt stopped.

    Returns the path, and the sha256 that the file must have; the caller compares, and moves it. Raises
    DownloadFailed, ChecksumMismatch, NotEnoughDisk and what the gate raises.
    """
    refuse_split(source)
    failures = 0
    furthest = 0
    with _session(surroundings.gate) as session:
        while True:
            try:
                file = _describe(source, sha256)
                part = _part(destination, file.sha256)
                _transfer(session, source, file, part, surroundings)
            except _PassingError as error:
                here = sum(found.stat().st_size for found in destination.parent.glob(f"{destination.name}.*.part"))
                failures = 1 if here > furthest else failures + 1
                furthest = max(furthest, here)
                if failures >= (_ATTEMPTS_ONCE_BEGUN if here else _ATTEMPTS):
                    kept = " What is here is kept: pull it again to go on." if here else ""
                    raise DownloadFailed(f"{source}: {error}.{kept}") from error
                surroundings.sleep(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (failures - 1)))
            else:
                return part, file.sha256


def gguf_files(repo: str, gate: Gate) -> tuple[str, ...]:
    """The names of the repository's GGUF files. Raises DownloadFailed and what the gate raises."""
    name = f"hf:{repo}"
    try:
        with _session(gate), _translated(name):
            from huggingface_hub import HfApi  # noqa: PLC0415 - see above

            info = HfApi(endpoint=_endpoint(), token=_token() or False).model_info(repo, timeout=_READ_TIMEOUT_S)
    except _PassingError as error:
        raise DownloadFailed(f"{name}: {error}.") from error
    return tuple(file.rfilename for file in info.siblings or () if file.rfilename.lower().endswith(".gguf"))


def choose(repo: str, quantisation: str, names: tuple[str, ...]) -> HubFile:
    """The one file of this quantisation. Raises ModelError, which lists what there is, when there is not one."""
    models = [name for name in names if "mmproj" not in name.lower()]
    pattern = re.compile(rf"(?<![A-Za-z0-9]){re.escape(quantisation)}(?![A-Za-z0-9_])", re.IGNORECASE)
    matching = [name for name in models if pattern.search(name)]
    if not matching:
        known = ", ".join(models[:12]) or "no GGUF file at all"
        raise ModelError(f"hf:{repo} has no file of the quantisation {quantisation}. It has {known}.")
    if len(matching) > 1 and not _SPLIT.search(matching[0]):
        raise ModelError(f"hf:{repo} has several files of {quantisation}; name one: {', '.join(matching[:12])}")
    return HubFile(repo, matching[0])


def refuse_split(source: HubFile) -> None:
    """Raise ModelError for one part of several, before anything is downloaded."""
    split = _SPLIT.search(source.file)
    if split:
        raise ModelError(
            f"{source} is one part of a model in {int(split[1])} files, which this store does not join. Choose a"
            " repository that has it in one file, or join the parts with `llama-gguf-split --merge` and pull the"
            " result by its path."
        )


def _describe(source: HubFile, sha256: str | None) -> _Description:
    import huggingface_hub  # noqa: PLC0415 - see above

    endpoint = _endpoint()
    with _translated(str(source)):
        url = huggingface_hub.hf_hub_url(source.repo, source.file, endpoint=endpoint)
        found = huggingface_hub.get_hf_file_metadata(
            url, token=_token() or False, timeout=_CONNECT_TIMEOUT_S, endpoint=endpoint, user_agent=_USER_AGENT
        )
    theirs = found.etag if found.etag and _SHA256.fullmatch(found.etag) else None
    if sha256 and theirs and theirs != sha256:
        raise ChecksumMismatch(
            str(source),
            expected=sha256,
            actual=theirs,
            advice="The repository has replaced the file since this release: update the appliance, or name the new"
            f" file as {source} if you trust it.",
        )
    expected = sha256 or theirs
    if expected is None or found.size is None or found.commit_hash is None:
        raise DownloadFailed(f"{source}: the server gives no sha256 or no size for it, so it cannot be checked.")
    pinned = huggingface_hub.hf_hub_url(source.repo, source.file, revision=found.commit_hash, endpoint=endpoint)
    return _Description(pinned, found.size, expected)


def _part(destination: Path, sha256: str) -> Path:
    """Where the bytes of this version gather. Those of an earlier version of the file are of no use to it."""
    part = destination.with_name(f"{destination.name}.{sha256[:16]}.part")
    for other in destination.parent.glob(f"{destination.name}.*.part"):
        if other != part:
            other.unlink()
    return part


def _transfer(
    session: "httpx2.Client", source: HubFile, file: _Description, part: Path, surroundings: Surroundings
) -> None:
    """Append to `part` what it lacks."""
    here = part.stat().st_size if part.exists() else 0
    if here > file.size_bytes:  # it is not what it claims to be
        part.unlink()
        here = 0
    surroundings.report(here, file.size_bytes)
    surroundings.reserve(file.size_bytes - here)
    if here == file.size_bytes:
        return
    headers = {"Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
    if token := _token():
        headers["Authorization"] = f"Bearer {token}"  # the client drops it when it is redirected to another host
    if here:
        headers["Range"] = f"bytes={here}-"
    with _translated(str(source)), session.stream("GET", file.url, headers=headers, timeout=_timeout()) as response:
        if response.status_code == 416:
            part.unlink(missing_ok=True)
            raise _PassingError("the server could not go on where the transfer stopped")
        here = _start_of(response, here)
        with part.open("r+b" if part.exists() else "wb") as copy:
            copy.truncate(here)
            copy.seek(here)
            for block in response.iter_bytes():  # as it arrives: a fixed size would hold back what a break loses
                here += len(block)
                if here > file.size_bytes:
                    raise DownloadFailed(
                        f"{source}: the server sends more than the {file.size_bytes:,} bytes announced."
                    )
                copy.write(block)
                surroundings.report(here, file.size_bytes)
    if here < file.size_bytes:
        raise _PassingError(f"the transfer ended after {here:,} of {file.size_bytes:,} bytes")


def _start_of(response: "httpx2.Response", asked: int) -> int:
    """The byte of the file at which the response's body starts. A server may ignore the range it was asked for."""
    status = response.status_code
    if status == 200:
        return 0
    if status == 206:
        given = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if given is not None and int(given[1]) <= asked:
            return int(given[1])
        raise DownloadFailed(f"{response.url.host} sent another range than byte {asked:,} onwards.")
    if status in _RETRIED_STATUSES:
        raise _PassingError(f"{response.url.host} answered {status}")
    raise DownloadFailed(f"{response.url.host} refuses to send the file: it answered {status}.")


@contextmanager
def _session(gate: Gate) -> Iterator["httpx2.Client"]:
    """The hub library's HTTP client, which asks the gate before every request, redirects included."""
    # No telemetry: the library would otherwise contact the hub to say who runs it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import get_session  # noqa: PLC0415 - see above

    def ask(request: "httpx2.Request") -> None:
        gate(str(request.url))

    session = get_session()
    session.event_hooks["request"].insert(0, ask)
    try:
        yield session
    finally:
        session.event_hooks["request"].remove(ask)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """The hub's and the transport's errors as ours."""
    import httpx2  # noqa: PLC0415 - see above
    from huggingface_hub import errors  # noqa: PLC0415

    try:
        yield
    except errors.GatedRepoError as error:
        raise DownloadFailed(
            f"{what}: accept its licence on {_endpoint()} first, then set HF_TOKEN to a token of that account."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise DownloadFailed(
            f"{what}: no such repository, or it is private. Check its name, or set HF_TOKEN to a token that may see it."
        ) from error
    except errors.EntryNotFoundError as error:
        raise DownloadFailed(f"{what}: the repository has no such file.") from error
    except errors.OfflineModeIsEnabled as error:
        raise DownloadFailed(f"{what}: HF_HUB_OFFLINE is set; unset it to download.") from error
    except errors.HFValidationError as error:
        raise ModelError(f"{what}: {error}") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in _RETRIED_STATUSES:
            raise _PassingError(f"the server answered {status}") from error
        hint = " Check HF_TOKEN." if status in (401, 403) else ""
        raise DownloadFailed(f"{what}: the server answered {status}.{hint}") from error
    except httpx2.HTTPError as error:
        raise _PassingError(
            f"{_endpoint()} cannot be reached or broke off ({error or type(error).__name__})"
        ) from error


def _timeout() -> "httpx2.Timeout":
    import httpx2  # noqa: PLC0415 - see above

    return httpx2.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _token() -> str | None:
    from huggingface_hub import get_token  # noqa: PLC0415 - see above

    return get_token()
