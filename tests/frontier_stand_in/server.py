"""The stand-in's server: which request is whose, who may ask, and the control that tests have of it."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pydantic import ValidationError

from tests.frontier_stand_in.answers import answer
from tests.frontier_stand_in.anthropic_api import Anthropic
from tests.frontier_stand_in.api import Api
from tests.frontier_stand_in.control import Control, Fault, FaultQueue
from tests.frontier_stand_in.http_wire import Connection, Hangup, NotHttp, Reader, Request
from tests.frontier_stand_in.journal import Entry, Journal
from tests.frontier_stand_in.openai_api import OpenAi
from tests.frontier_stand_in.reply import JSON, Reply, send_document, send_in_place

AZURE = re.compile(r"/openai/deployments/([^/]+)/chat/completions")
CONTROL = ("/_control", "/_control/faults", "/_journal")


class _Refused(Exception):
    """The request gets an error in the shape of its API."""

    def __init__(self, api: Api, status: int, message: str) -> None:
        super().__init__(message)
        self.api = api
        self.status = status
        self.message = message


class StandInServer:
    def __init__(self, key: str | None) -> None:
        self._key = key
        self._control = Control()
        self._faults = FaultQueue()
        self._journal = Journal()
        self._numbers = itertools.count(1)  # of requests that are answered
        self._connections = 0  # that carried an API request

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[str]:
        """Serves on loopback; gives its URL. On leaving, all connections end where they are."""
        loop = asyncio.get_running_loop()
        open_connections: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                assert isinstance(reader, Reader)
                task = tasks.create_task(self._serve(Connection(reader, writer)))
                open_connections.add(task)
                task.add_done_callback(open_connections.discard)

            server = await loop.create_server(lambda: asyncio.StreamReaderProtocol(Reader(), accept), "127.0.0.1", port)
            try:
                yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            finally:
                server.close()
                for task in open_connections:
                    task.cancel()

    async def _serve(self, connection: Connection) -> None:
        counted = False
        try:
            while request := await connection.request():
                if request.path in CONTROL:
                    await self._obey(connection, request)
                else:
                    self._connections += not counted
                    counted = True
                    await self._answer(connection, request)
                if not request.keep_alive:
                    break
        except NotHttp as error:
            await _refuse_bytes(connection, error)
        except (Hangup, ConnectionError):
            pass
        finally:
            connection.close()

    async def _obey(self, connection: Connection, request: Request) -> None:
        try:
            match (request.method, request.path):
                case ("PUT", "/_control"):
                    given = Control.model_validate_json(request.body)
                    self._control = self._control.changed_by(given)
                    if "faults" in given.model_fields_set:
                        self._faults = FaultQueue(given.faults)
                case ("POST", "/_control/faults"):
                    self._faults.add(Fault.model_validate_json(request.body))
                case ("GET", "/_journal"):
                    journal = self._journal.as_json(self._connections)
                    await connection.answer(200, JSON, json.dumps(journal).encode())
                    return
                case ("DELETE", "/_journal"):
                    self._journal, self._control, self._faults = Journal(), Control(), FaultQueue()
                case _:
                    await connection.answer(405, {}, b"")
                    return
        except ValidationError as error:
            await connection.answer(400, {"content-type": "text/plain"}, str(error).encode())
            return
        await connection.answer(200, JSON, b"{}")

    async def _answer(self, connection: Connection, request: Request) -> None:
        entry = Entry(request.method, request.path, request.query, request.headers, request.json())
        self._journal.entries.append(entry)
        try:
            await self._answer_as_its_api(connection, request, entry)
        except _Refused as refusal:
            entry.status = refusal.status
            document = refusal.api.error(refusal.status, refusal.message)
            await connection.answer(refusal.status, JSON, json.dumps(document).encode())

    async def _answer_as_its_api(self, connection: Connection, request: Request, entry: Entry) -> None:
        api = _api(request)
        if api is None:
            raise _Refused(OpenAi(), 404, f"There is no such endpoint: {request.method} {request.path}")
        if not self._has_key(request, api):
            raise _Refused(api, 401, "Incorrect API key provided.")
        fault = self._faults.take()
        entry.fault = None if fault.kind == "none" else fault.kind
        if await send_in_place(connection, api, fault, entry):
            return
        if request.method == "GET":
            entry.status = 200
            await send_document(connection, api.models(), fault, {})
            return
        number = next(self._numbers)
        try:
            azure = AZURE.fullmatch(request.path)
            question = api.question({**entry.body, "model": azure[1]} if azure else entry.body, request.headers)
            said = answer(question, self._control, fault.kind, number)
        except ValueError as error:
            raise _Refused(api, 400, str(error)) from None
        except (KeyError, TypeError, AttributeError) as error:
            raise _Refused(api, 400, f"The body is not understood: {error!r}") from None
        await Reply(connection, api, number, question, said, self._control, fault, entry).send()

    def _has_key(self, request: Request, api: Api) -> bool:
        if self._key is None:
            return True
        sent = {request.headers[name].removeprefix("Bearer ") for name in api.key_headers if name in request.headers}
        return sent == {self._key}


def _api(request: Request) -> Api | None:
    """Whose request it is; None where it is nobody's."""
    match (request.method, request.path):
        case ("POST", "/v1/chat/completions"):
            return OpenAi()
        case ("POST", "/v1/messages"):
            return Anthropic()
        case ("GET", "/v1/models"):
            return Anthropic() if "anthropic-version" in request.headers else OpenAi()
        case ("POST", path) if AZURE.fullmatch(path):
            return OpenAi(key_headers=("api-key", "authorization"))
    return None


async def _refuse_bytes(connection: Connection, error: NotHttp) -> None:
    with suppress(Hangup):
        await connection.answer(400, {"content-type": "text/plain", "connection": "close"}, str(error).encode())
