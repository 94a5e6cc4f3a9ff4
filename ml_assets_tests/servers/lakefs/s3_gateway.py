"""The S3 side, path-style: who may ask, which operation a request is, how a refusal looks."""

from ml_assets_tests.servers.lakefs import s3_listing, s3_objects, sigv2, sigv4
from ml_assets_tests.servers.lakefs.catalog import Catalog
from ml_assets_tests.servers.lakefs.exchange import Request, Response, Unsatisfiable
from ml_assets_tests.servers.lakefs.refusals import (
    Collected,
    Forbidden,
    Invalid,
    Missing,
    NotImplementedHere,
    PreconditionFailed,
    ReadOnly,
    Refused,
)
from ml_assets_tests.servers.lakefs.s3_xml import S3Error, error

_CODES: list[tuple[type[Refused], str]] = [  # the first that fits
    (ReadOnly, "ReadOnlyRepository"),
    (Forbidden, "WriteToProtectedBranch"),
    (PreconditionFailed, "PreconditionFailed"),
    (Collected, "NoSuchVersion"),
    (Unsatisfiable, "InvalidRange"),
    (NotImplementedHere, "NotImplemented"),
    (Missing, "NoSuchKey"),
    (Invalid, "BadRequest"),
    (Refused, "InternalError"),
]


def is_signed(request: Request) -> bool:
    """Whether a request is meant for the gateway, whatever its path."""
    scheme = request.header("Authorization")
    in_query = request.has("X-Amz-Credential") or request.has("AWSAccessKeyId")
    return scheme.startswith(("AWS4", sigv2.SCHEME)) or in_query


def answer(catalog: Catalog, request: Request) -> Response:
    try:
        setup = catalog.setup
        keys = setup.access_key, setup.secret_key
        old = request.header("Authorization").startswith(sigv2.SCHEME)
        request.body = (sigv2 if old else sigv4).verify(request, *keys, catalog.clock())
        return _operation(catalog, request)
    except S3Error as refused:
        return error(refused, request)
    except Refused as refused:
        code = next(code for kind, code in _CODES if isinstance(refused, kind))
        return error(S3Error(code, "" if code == "NoSuchKey" else refused.message), request)


def _operation(catalog: Catalog, request: Request) -> Response:
    bucket, _, rest = request.path.lstrip("/").partition("/")
    if not bucket:
        return s3_listing.list_buckets(request, catalog)
    try:
        repository = catalog.repository(bucket)
    except Refused as refused:
        if request.path.startswith("/api/v1"):
            raise S3Error("ErrNoSuchBucketPossibleAPIEndpoint") from refused
        creates = request.method == "PUT" and not rest
        raise S3Error("NotImplemented" if creates else "NoSuchBucket") from refused
    if not rest:
        return _on_bucket(catalog, request, s3_listing.Bucket(catalog, repository))
    reference, _, path = rest.partition("/")
    if not reference or not path:
        return Response(404)  # neither a bucket nor an object
    place = s3_objects.Place(catalog, repository, reference, path)
    return _on_object(request, place)


def _on_bucket(catalog: Catalog, request: Request, bucket: s3_listing.Bucket) -> Response:
    match request.method:
        case "HEAD":
            return Response(200)
        case "GET":
            return s3_listing.list_bucket(request, bucket)
        case "POST" if request.has("delete"):
            return s3_objects.delete_many(request, catalog, bucket.repository)
        case "PUT":
            raise S3Error("BucketAlreadyExists")
    raise S3Error("ERRLakeFSNotSupported")


def _on_object(request: Request, place: s3_objects.Place) -> Response:
    match request.method:
        case "GET" if request.has("uploadId"):
            return s3_objects.list_parts(request, place)
        case "GET" | "HEAD":
            return s3_objects.get(request, place)
        case "PUT":
            return s3_objects.put(request, place)
        case "POST" if request.has("uploads"):
            return s3_objects.begin(request, place)
        case "POST" if request.has("uploadId"):
            return s3_objects.complete(request, place)
        case "DELETE" if request.has("uploadId"):
            return s3_objects.abort(request, place)
        case "DELETE":
            return s3_objects.delete(request, place)
    raise S3Error("MethodNotAllowed")
