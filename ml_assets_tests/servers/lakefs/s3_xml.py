"""The words of S3: error codes with their status, XML bodies, times."""

import time
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from ml_assets_tests.servers.lakefs.exchange import Request, Response

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_ERRORS = {
    "AccessDenied": (403, "Access Denied."),
    "AuthorizationQueryParametersError": (400, "The authorization parameters are malformed."),
    "BadRequest": (400, "400 BadRequest"),
    "BucketAlreadyExists": (409, "The requested bucket name is not available."),
    "ERRLakeFSNotSupported": (405, "This operation is not supported in LakeFS"),
    "ErrNoSuchBucketPossibleAPIEndpoint": (
        404,
        'Repository "api" not found; this can happen if your endpoint URL mistakenly ends in'
        ' "/api/v1".',
    ),
    "IncompleteBody": (400, "The body is not as long as its headers say."),
    "InternalError": (500, "We encountered an internal error, please try again."),
    "InvalidAccessKeyId": (403, "The access key is not known."),
    "InvalidArgument": (400, "An argument is invalid."),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "InvalidRequest": (400, "The request is invalid."),
    "MalformedDate": (400, "The date is malformed."),
    "MalformedXML": (400, "The XML is not well-formed."),
    "MethodNotAllowed": (405, "The method is not allowed against this resource."),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchUpload": (404, "The specified multipart upload does not exist."),
    "NoSuchVersion": (404, "The version does not exist."),
    "NotImplemented": (501, "A header you provided implies functionality that is missing"),
    "PreconditionFailed": (412, "At least one of the pre-conditions did not hold"),
    "ReadOnlyRepository": (403, "Cannot write to a read-only repository."),
    "RequestTimeTooSkewed": (403, "The request's time is too far from the server's."),
    "SignatureDoesNotMatch": (403, "The signature is not the one that the server calculated."),
    "SlowDown": (503, "Please reduce your request rate."),
    "WriteToProtectedBranch": (403, "Cannot write to protected branch."),
    "XAmzContentSHA256Mismatch": (400, "The body has another x-amz-content-sha256."),
}

Value = str | int | bool | Mapping[str, "Value"] | Sequence["Value"]


class S3Error(Exception):
    """An answer of the gateway that is an error: its code, and words of its own if any."""

    def __init__(self, code: str, words: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.status, standard = _ERRORS[code]
        self.words = words or standard


def error(refused: S3Error, request: Request) -> Response:
    if request.method == "HEAD":
        return Response(refused.status)
    body = {
        "Code": refused.code,
        "Message": refused.words,
        "Resource": request.raw_path,
        "RequestId": "0" * 16,
        "HostId": "",
    }
    return document("Error", body, refused.status, namespace="")


def document(root: str, value: Value, status: int = 200, *, namespace: str = NAMESPACE) -> Response:
    said = f' xmlns="{namespace}"' if namespace else ""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{said}>{_inner(value)}</{root}>'
    return Response(status, text.encode(), {"Content-Type": "application/xml"})


def timestamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def _inner(value: Value) -> str:
    """Elements of a mapping; a sequence repeats its element."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return escape(str(value))
    if isinstance(value, Mapping):
        return "".join(_elements(name, each) for name, each in value.items())
    return "".join(_inner(each) for each in value)


def _elements(name: str, value: Value) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(f"<{name}>{_inner(each)}</{name}>" for each in value)
    return f"<{name}>{_inner(value)}</{name}>"
