"""Presigned URLs of the object store below lakeFS, and the requests that use them.

The store is another host, here another port: a client that follows a redirect must leave its own
credentials behind. A URL is good for one method and one object, for some minutes; a request that
also carries an Authorization header is refused, as S3 does.
"""

from email.message import Message
from urllib.parse import quote, urlencode

from ml_assets_tests.servers.lakefs import sigv4
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import (
    BadRange,
    Request,
    Response,
    Unsatisfiable,
    byte_range,
)
from ml_assets_tests.servers.lakefs.object_store import md5
from ml_assets_tests.servers.lakefs.refusals import Collected, Missing
from ml_assets_tests.servers.lakefs.s3_xml import S3Error, error


def presigned_url(
    catalog: Catalog, method: str, address: str, query: dict[str, str] | None = None
) -> tuple[str, int]:
    """The URL, and when it expires (seconds since 1970).

    Raises:
        Invalid: the block store cannot presign.
    """
    setup = catalog.setup
    setup.check_presigns()
    path = "/" + quote(address.partition("://")[2], safe="/,-_.~")
    moment = sigv4.amz_time(catalog.clock())
    said = {
        **(query or {}),
        "X-Amz-Algorithm": sigv4.ALGORITHM,
        "X-Amz-Credential": f"{setup.store_key}/{moment[:8]}/us-east-1/s3/aws4_request",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(setup.presign_expires),
        "X-Amz-SignedHeaders": "host",
    }
    host = Message()
    host["Host"] = catalog.store_endpoint.partition("://")[2]
    unsigned = Request(method, f"{path}?{urlencode(said, quote_via=quote)}", host)
    claim = sigv4.Claim(setup.store_key, moment[:8], "us-east-1", "s3", ("host",), "", moment)
    signature = sigv4.signature(unsigned, claim, setup.store_secret, sigv4.UNSIGNED)
    expires = int(catalog.clock()) + setup.presign_expires
    return f"{catalog.store_endpoint}{unsigned.target}&X-Amz-Signature={signature}", expires


def answer(catalog: Catalog, request: Request) -> Response:
    """The answer of the object store."""
    try:
        setup = catalog.setup
        sigv4.verify_presigned(request, setup.store_key, setup.store_secret, catalog.clock())
        return _carried_out(catalog, request, f"{catalog.setup.blockstore}:/{request.path}")
    except S3Error as refused:
        return error(refused, request)


def _carried_out(catalog: Catalog, request: Request, address: str) -> Response:
    if request.method == "PUT" and request.has("uploadId"):
        try:
            name, number = request.one("uploadId"), int(request.one("partNumber"))
            etag = catalog.store.put_part(name, number, request.body)
        except Missing as missing:
            raise S3Error("NoSuchUpload") from missing
        return Response(200, b"", {"ETag": f'"{etag}"'})
    if request.method == "PUT":
        if catalog.setup.blockstore == "azure" and not request.header("x-ms-blob-type"):
            raise S3Error("InvalidRequest", "An HTTP header that's mandatory is not specified.")
        catalog.store.put_at(address, request.body)
        return Response(200, b"", {"ETag": f'"{md5(request.body)}"'})
    if request.method not in {"GET", "HEAD"}:
        raise S3Error("MethodNotAllowed")
    try:
        content = catalog.store.get(address)
    except Collected as collected:
        raise S3Error("NoSuchKey") from collected
    headers = {"ETag": f'"{md5(content)}"', "Accept-Ranges": "bytes"}
    try:
        spec = request.header("Range")
        first, last = byte_range(spec, len(content)) if spec else (0, len(content) - 1)
    except Unsatisfiable as bad:
        raise S3Error("InvalidRange") from bad
    except BadRange:
        spec, first, last = "", 0, len(content) - 1
    if spec:
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(206 if spec else 200, content[first : last + 1], headers)
