"""AWS Signature Version 2, which lakeFS's gateway still takes: in a header, as old S3 clients sign.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html
"""

import base64
import hashlib
import hmac
import re
from calendar import timegm
from email.utils import parsedate_tz
from time import strptime

from ml_assets_tests.servers.lakefs.exchange import Request
from ml_assets_tests.servers.lakefs.s3_xml import S3Error
from ml_assets_tests.servers.lakefs.sigv4 import LARGEST_SKEW

SCHEME = "AWS "

_HEADER = re.compile(r"AWS (.{3,20}):([A-Za-z0-9+/=]+)")
_SIGNED = frozenset(
    f"""accelerate acl analytics copy-source cors defaultObjectAcl delete inventory lifecycle
    location logging metrics notification partNumber policy replication requestPayment restore
    select select-type storageClass tagging torrent uploadId uploads versionId versioning versions
    website
    {" ".join(f"response-{what}" for what in ("cache-control", "content-type", "expires"))}
    {" ".join(f"response-content-{what}" for what in ("disposition", "encoding", "language"))}
    """.split()
)
"""Arguments of the query that are part of what is signed."""


def verify(request: Request, key: str, secret: str, now: float) -> bytes:
    """The body, which this signature does not cover.

    Raises:
        S3Error: another key, a wrong or an old signature.
    """
    found = _HEADER.fullmatch(request.header("Authorization"))
    if not found or found[1] != key:
        raise S3Error("AccessDenied")
    if abs(now - _moment(request)) > LARGEST_SKEW:
        raise S3Error("RequestTimeTooSkewed")
    expected = hmac.new(secret.encode(), _said(request).encode(), hashlib.sha1).digest()
    if not hmac.compare_digest(base64.b64encode(expected).decode(), found[2]):
        raise S3Error("SignatureDoesNotMatch")
    return request.body


def _said(request: Request) -> str:
    standard = [request.header(name) for name in ("Content-MD5", "Content-Type", "Date")]
    custom = sorted(
        f"{name.lower()}:{value.strip()}"
        for name, value in request.headers.items()
        if name.lower().startswith("x-amz-")
    )
    arguments = {name: value for name, value in request.query if name in _SIGNED}
    query = "&".join(
        f"{name}={arguments[name]}" if arguments[name] else name for name in sorted(arguments)
    )
    resource = request.raw_path + (f"?{query}" if query else "")
    return "\n".join([request.method, *standard, *custom, resource])


def _moment(request: Request) -> float:
    said = request.header("x-amz-date") or request.header("Date")
    parsed = parsedate_tz(said)
    if parsed:
        return timegm((*parsed[:6], 0, 0, 0)) - (parsed[9] or 0)
    try:
        return timegm(strptime(said, "%Y%m%dT%H%M%SZ"))
    except ValueError as bad:
        raise S3Error("MalformedDate") from bad
