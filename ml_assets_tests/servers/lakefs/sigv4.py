"""AWS Signature Version 4: parse what a request claims, compute what it should be, compare.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html
"""

import hashlib
import hmac
import re
import time
from calendar import timegm
from dataclasses import dataclass
from urllib.parse import quote

from ml_assets_tests.servers.lakefs.exchange import Request
from ml_assets_tests.servers.lakefs.s3_xml import S3Error

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_UNSIGNED = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
LARGEST_SKEW = 15 * 60

_EMPTY = hashlib.sha256(b"").hexdigest()
_HEADER = re.compile(
    rf"{ALGORITHM} Credential=([^/]+)/(\d{{8}})/([\w-]+)/([\w-]+)/aws4_request,\s*"
    r"SignedHeaders=([^,]+),\s*Signature=([0-9a-f]{64})"
)
_SCOPE = re.compile(r"([^/]+)/(\d{8})/([\w-]+)/([\w-]+)/aws4_request")


@dataclass(frozen=True)
class Claim:
    """Who says to have signed what, and how."""

    key: str
    date: str
    region: str
    service: str
    signed: tuple[str, ...]
    signature: str
    moment: str
    """``20260101T000000Z``."""
    expires: int | None = None

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def amz_time(seconds: float) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))


def verify(request: Request, key: str, secret: str, now: float) -> bytes:
    """The body as the sender meant it: of a streamed one, without its chunk signatures.

    Raises:
        S3Error: no signature, another key, a wrong or an old signature, another body.
    """
    if request.header("Authorization"):
        claim = _from_header(request)
    else:
        claim = _from_query(request)
    if claim.key != key:
        raise S3Error("AccessDenied")
    payload = request.header("x-amz-content-sha256") or UNSIGNED
    _compare(request, claim, secret, payload, now)
    if payload == STREAMING:
        return _signed_chunks(request.body, claim, secret)
    if payload == STREAMING_UNSIGNED:
        return _unsigned_chunks(request.body, request.header("x-amz-trailer"))
    if payload != UNSIGNED and hashlib.sha256(request.body).hexdigest() != payload:
        raise S3Error("XAmzContentSHA256Mismatch")
    return request.body


def verify_presigned(request: Request, key: str, secret: str, now: float) -> None:
    """The same for a URL alone; two ways of saying who one is are one too many."""
    if request.header("Authorization"):
        raise S3Error("InvalidArgument", "Only one auth mechanism allowed")
    claim = _from_query(request)
    if claim.key != key:
        raise S3Error("InvalidAccessKeyId")
    _compare(request, claim, secret, UNSIGNED, now)


def signature(request: Request, claim: Claim, secret: str, payload: str) -> str:
    """What the signature of a request should be."""
    query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in request.query
        if name != "X-Amz-Signature"
    )
    canonical = "\n".join(
        [
            request.method,
            quote(request.path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{' '.join(request.header(name).split())}" for name in sorted(claim.signed)),
            "",
            ";".join(claim.signed),
            payload,
        ]
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    return _signed(claim, secret, [ALGORITHM, claim.moment, claim.scope, hashed])


def _compare(request: Request, claim: Claim, secret: str, payload: str, now: float) -> None:
    if not hmac.compare_digest(signature(request, claim, secret, payload), claim.signature):
        raise S3Error("SignatureDoesNotMatch")
    try:
        signed_at = timegm(time.strptime(claim.moment, "%Y%m%dT%H%M%SZ"))
    except ValueError as bad:
        raise S3Error("MalformedDate") from bad
    if claim.expires is not None:
        if now > signed_at + claim.expires:
            raise S3Error("AccessDenied", "Request has expired")
    elif abs(now - signed_at) > LARGEST_SKEW:
        raise S3Error("RequestTimeTooSkewed")


def _from_header(request: Request) -> Claim:
    found = _HEADER.fullmatch(request.header("Authorization"))
    if not found:
        raise S3Error("AccessDenied")
    key, date, region, service, signed, said = found.groups()
    moment = request.header("x-amz-date")
    return Claim(key, date, region, service, tuple(signed.split(";")), said, moment)


def _from_query(request: Request) -> Claim:
    found = _SCOPE.fullmatch(request.one("X-Amz-Credential"))
    if not found or request.one("X-Amz-Algorithm") != ALGORITHM:
        raise S3Error("AccessDenied")
    signed = tuple(request.one("X-Amz-SignedHeaders").split(";"))
    moment, said = request.one("X-Amz-Date"), request.one("X-Amz-Signature")
    expires = request.one("X-Amz-Expires")
    if not expires.isdigit() or int(expires) > 7 * 24 * 3600:
        raise S3Error("AuthorizationQueryParametersError")
    key, date, region, service = found.groups()
    return Claim(key, date, region, service, signed, said, moment, int(expires))


def _signed(claim: Claim, secret: str, lines: list[str]) -> str:
    key = f"AWS4{secret}".encode()
    for part in (claim.date, claim.region, claim.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).hexdigest()


# --- chunked bodies -------------------------------------------------------------------------------


def _signed_chunks(body: bytes, claim: Claim, secret: str) -> bytes:
    """``<hex size>;chunk-signature=<hex>`` before each chunk; each signs the one before it."""
    result, previous, place = [], claim.signature, 0
    while True:
        head, place = _line(body, place)
        size, _, said = head.partition(";chunk-signature=")
        chunk = body[place : place + _hex(size)]
        hashed = hashlib.sha256(chunk).hexdigest()
        lines = [f"{ALGORITHM}-PAYLOAD", claim.moment, claim.scope, previous, _EMPTY, hashed]
        previous = _signed(claim, secret, lines)
        if not hmac.compare_digest(previous, said):
            raise S3Error("SignatureDoesNotMatch")
        if not chunk:
            return b"".join(result)
        result.append(chunk)
        place += len(chunk) + 2


def _unsigned_chunks(body: bytes, trailer: str) -> bytes:
    """Chunks without signatures, then the checksum that the header announced.

    Its value is compared where this Python has the algorithm (CRC32, SHA-1, SHA-256).
    """
    result, place = [], 0
    while True:
        head, place = _line(body, place)
        size = _hex(head.partition(";")[0])
        if not size:
            break
        result.append(body[place : place + size])
        place += size + 2
    name, _, said = _line(body, place)[0].partition(":")
    if name.lower() != trailer.lower():
        raise S3Error("InternalError")
    content = b"".join(result)
    if not _checks(name.lower(), content, said.strip()):
        raise S3Error("InternalError")
    return content


def _checks(name: str, content: bytes, said: str) -> bool:
    import base64
    import zlib

    algorithms = {
        "x-amz-checksum-crc32": lambda: zlib.crc32(content).to_bytes(4, "big"),
        "x-amz-checksum-sha1": lambda: hashlib.sha1(content).digest(),
        "x-amz-checksum-sha256": lambda: hashlib.sha256(content).digest(),
    }
    compute = algorithms.get(name)
    return compute is None or base64.b64encode(compute()).decode() == said


def _line(body: bytes, place: int) -> tuple[str, int]:
    end = body.find(b"\r\n", place)
    if end < 0:
        raise S3Error("IncompleteBody")
    return body[place:end].decode("latin-1"), end + 2


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError as bad:
        raise S3Error("IncompleteBody") from bad
