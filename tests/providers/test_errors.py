"""Every exception an SDK or its transport can raise means something, and says nothing it must not."""

from __future__ import annotations

import inspect
import json
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import openai._exceptions
import pytest
from aiohttp.client_reqrep import ConnectionKey

from batchctl.core.errors import Fault, ProviderError
from batchctl.providers import anthropic_format, openai_results
from batchctl.providers.anthropic import _exceptions as anthropic_exceptions
from batchctl.providers.errors import ANTHROPIC_MARKS, OPENAI_MARKS, Call, ErrorReader, SdkErrors
from batchctl.providers.openai import _exceptions as openai_exceptions

KEY = "sk-secret-9876543210"
READERS = {
    "anthropic": (
        ErrorReader("anthropic", anthropic_format.parse_error, ANTHROPIC_MARKS, (KEY,)), anthropic_exceptions(),
    ),
    "openai": (ErrorReader("openai", openai_results.parse_error, OPENAI_MARKS, (KEY, None)), openai_exceptions()),
}  # fmt: skip
REQUEST = httpx2.Request("POST", "http://127.0.0.1/", headers={"Authorization": f"Bearer {KEY}"})


def classes(module: Any, base: type[Exception]) -> list[type[Exception]]:
    """Every exception class of a module below a base."""
    found = {value for _, value in inspect.getmembers(module, inspect.isclass) if issubclass(value, base)}
    return sorted(found, key=lambda class_: class_.__name__)


def instance(class_: type[Exception]) -> Exception:
    """An exception of any class, however it wants to be made."""
    error = class_.__new__(class_)
    error.args = (f"text with {KEY}",)
    status = class_.__dict__.get("status_code", 500)
    response = httpx2.Response(status if isinstance(status, int) else 500, content=b"<html>", request=REQUEST)
    error.__dict__ |= {"response": response, "message": f"text with {KEY}"}
    return error


SDK_CLASSES = [("anthropic", class_) for class_ in classes(anthropic._exceptions, anthropic.AnthropicError)] + [
    ("openai", class_) for class_ in classes(openai._exceptions, openai.OpenAIError)
]
TRANSPORT_CLASSES = [*classes(httpx2, httpx2.HTTPError), *classes(httpx2, httpx2.StreamError), httpx2.InvalidURL]


@pytest.mark.parametrize(("name", "class_"), SDK_CLASSES, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("call", Call)
def test_every_class_of_the_sdk_is_mapped(name: str, class_: type[Exception], call: Call) -> None:
    """A new class in an SDK shows up here, not as a traceback at night."""
    reader, sdk = READERS[name]
    read = reader.of_exception(instance(class_), call, sdk)
    assert isinstance(read, ProviderError)
    assert KEY not in read.message


@pytest.mark.parametrize("class_", [*TRANSPORT_CLASSES, *classes(aiohttp, aiohttp.ClientError), TimeoutError, OSError])
@pytest.mark.parametrize("name", READERS)
def test_every_class_of_the_transport_is_mapped(name: str, class_: type[Exception]) -> None:
    """Bodies being streamed raise the transport's own classes, without the SDK around them."""
    reader, _ = READERS[name]
    told = type(class_.__name__, (class_,), {"__init__": lambda _: None, "__str__": lambda _: f"text with {KEY}"})
    error: Exception = told()
    read = reader.of_exception(error, Call.CREATE)
    assert isinstance(read, ProviderError)
    assert KEY not in read.message


def test_other_exceptions_are_not_ours() -> None:
    """A fault of the program stays a fault of the program."""
    reader, sdk = READERS["openai"]
    assert reader.of_exception(KeyError("x"), Call.READ, sdk) is None
    known = ProviderError("x", fault=Fault.RETRY)
    assert reader.of_exception(known, Call.READ, sdk) is known


PLACE = ConnectionKey("h", 1, is_ssl=False, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None)


def wrapped(cause: Exception, outer: type[Exception], sdk_error: type[Exception]) -> Exception:
    """A transport failure as the SDK raises it."""
    middle = outer(str(cause))
    middle.__cause__ = cause
    error = sdk_error.__new__(sdk_error)
    error.__cause__ = middle
    return error


@pytest.mark.parametrize(
    ("cause", "outer", "fault"),
    [
        (aiohttp.ClientConnectorError(PLACE, OSError(111, "refused")), httpx2.ConnectError, Fault.RETRY),
        (aiohttp.ClientConnectorDNSError(PLACE, OSError(8, "no name")), httpx2.ConnectError, Fault.RETRY),
        (aiohttp.ConnectionTimeoutError(), httpx2.ConnectTimeout, Fault.RETRY),
        (aiohttp.ServerDisconnectedError(), httpx2.ConnectError, Fault.AMBIGUOUS),
        (aiohttp.ServerDisconnectedError(), httpx2.ConnectTimeout, Fault.AMBIGUOUS),
        (aiohttp.ClientOSError(104, "reset"), httpx2.ConnectError, Fault.AMBIGUOUS),
        (aiohttp.SocketTimeoutError(), httpx2.ReadTimeout, Fault.AMBIGUOUS),
        (aiohttp.ClientPayloadError("cut"), httpx2.ReadError, Fault.AMBIGUOUS),
        (aiohttp.InvalidURL("x"), httpx2.UnsupportedProtocol, Fault.SYSTEMIC),
    ],
)
@pytest.mark.parametrize("name", READERS)
def test_only_the_transport_knows_whether_a_create_left(
    name: str, cause: Exception, outer: type[Exception], fault: Fault
) -> None:
    """A cut after sending comes as ConnectError from one SDK, as ConnectTimeout from the other: both are in doubt."""
    reader, sdk = READERS[name]
    error = wrapped(cause, outer, sdk.connection)
    for call, expected in ((Call.CREATE, fault), (Call.READ, Fault.RETRY if fault is Fault.AMBIGUOUS else fault)):
        read = reader.of_exception(error, call, sdk)
        assert read is not None
        assert read.fault is expected


def test_no_descriptors_left_is_named() -> None:
    """EMFILE is not a network fault, and says what helps (field report 155)."""
    reader, sdk = READERS["openai"]
    read = reader.of_exception(
        wrapped(
            aiohttp.ClientConnectorError(PLACE, OSError(24, "Too many open files")), httpx2.ConnectError, sdk.connection
        ),
        Call.SYNC,
        sdk,
    )
    assert read is not None
    assert "ulimit" in (read.hint or "")


OPENAI_WORDS = [
    ("No such File object: file-abc", Fault.FILE_NOT_READY),
    ("File file-abc could not be found.", Fault.FILE_NOT_READY),
    ("Cannot find the file file-abc", Fault.FILE_NOT_READY),
    ("File is pending", Fault.FILE_NOT_READY),
    ("Enqueued token limit reached for gpt in organization org. Limit: 90,000", Fault.QUEUE_FULL),
    ("You have exceeded your file storage quota.", Fault.STORAGE_FULL),
    ("Too many requests in this batch file", Fault.TOO_LARGE),
    ("Invalid value for endpoint", Fault.PERMANENT),
]


@pytest.mark.parametrize(("message", "fault"), OPENAI_WORDS)
@pytest.mark.parametrize("status", [400, 404, 429])
def test_refusals_of_a_whole_batch(message: str, fault: Fault, status: int) -> None:
    """The words decide what a refused create asks for; the same words in an outage decide nothing (field report 49)."""
    reader, _ = READERS["openai"]
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode()
    plain = {400: Fault.PERMANENT, 404: Fault.SYSTEMIC, 429: Fault.RETRY}[status]
    expected = plain if fault is Fault.PERMANENT else fault
    assert reader.of_answer(status, {}, body, Call.CREATE).fault is expected
    assert reader.of_answer(500, {}, body, Call.CREATE).fault is Fault.AMBIGUOUS


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "an empty body"),
        (b"<html><head><title> 502 Bad\nGateway </title>" + b"x" * 9999, "a web page (502 Bad Gateway)"),
        (b"  <!doctype html>" + b"x" * 9999, "a web page"),
        (b"upstream\n\nfailed" + b"x" * 9999, "upstream failed" + "x" * 64),
        (b'{"error":{"message":"' + b"long " * 9999 + b'"}}', "long " * 96),
    ],
)
def test_bodies_become_one_short_line(body: bytes, text: str) -> None:
    """No page and no request body ends up in a message."""
    reader, _ = READERS["anthropic"]
    message = reader.of_answer(502, {}, body, Call.READ).message
    assert message.startswith(f"anthropic answered 502: {text.strip()[:400]}")
    assert len(message) <= 500
    assert "\n" not in message


def test_what_an_error_carries() -> None:
    """Status, the provider's words, its wait and, where no item's error is made of it, its name of the request."""
    reader, _ = READERS["anthropic"]
    details = {"error_code": "ramp_limit_exceeded"}
    body = json.dumps({"error": {"type": "rate_limit_error", "message": "m", "details": details}}).encode()
    headers = {"retry-after": "12", "request-id": "req_1"}
    read = reader.of_answer(429, headers, body, Call.SYNC)
    assert (read.status, read.type, read.code) == (429, "rate_limit_error", "ramp_limit_exceeded")
    assert (read.message, read.retry_after, read.fault) == ("anthropic answered 429: m", 12.0, Fault.RETRY)
    assert reader.of_answer(429, headers, body, Call.CREATE).message == "anthropic answered 429 (request req_1): m"


def test_sdk_errors_name_real_classes() -> None:
    """The table's entries are the SDKs' own."""
    assert READERS["openai"][1] == SdkErrors(
        openai.APIStatusError, openai.APIConnectionError, openai.APIResponseValidationError, openai.OpenAIError
    )
