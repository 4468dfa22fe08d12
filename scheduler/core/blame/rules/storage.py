"""Lines that blame a store or a file system; and requests that a store rightly refuses, which are the program's own fault."""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_S: Final = FailureCategory.STORAGE
_U: Final = FailureCategory.USER_CODE
_CALL: Final = r"An error occurred \((?:{codes})\) when calling"

REFUSED: Final = (
    Rule(
        "store-no-such-bucket",
        r"NoSuchBucket|The specified bucket does not exist",
        _U,
        "the program names a bucket that does not exist",
        mine=True,
    ),
    Rule(
        "store-denied",
        _CALL.format(codes="AccessDenied|403|Forbidden|AllAccessDisabled|UnauthorizedAccess|AccountProblem"),
        _U,
        "the program may not do this in the store",
        mine=True,
    ),
    Rule(
        "store-credentials",
        r"NoCredentialsError|PartialCredentialsError|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken",
        _U,
        "the program has no valid credentials for the store",
        mine=True,
    ),
    Rule(
        "store-no-such-key",
        _CALL.format(codes="NoSuchKey|404|NotFound"),
        _U,
        "the program asks for an object that does not exist",
        mine=True,
    ),
    Rule(
        "store-bad-request",
        r"ParamValidationError|" + _CALL.format(codes="InvalidBucketName|InvalidArgument|400"),
        _U,
        "the program's request to the store is wrong",
        mine=True,
    ),
    Rule(
        "cloud-denied",
        r"google\.api_core\.exceptions\.(?:Forbidden|Unauthorized|NotFound|BadRequest)|"
        r"gcsfs\.retry\.HttpError: .{0,80}40[134]|azure\.core\.exceptions\.(?:ClientAuthentication|"
        r"ResourceNotFound)Error|DefaultCredentialsError",
        _U,
        "the program may not do this in its store, or names what is not there",
        mine=True,
    ),
    Rule(
        "no-such-folder", r"Parent directory .{0,300} does not exist", _U, "the program writes into a folder that does not exist", mine=True
    ),
)

STORAGE: Final = (
    Rule(
        "store-overloaded",
        r"\bSlowDown\b|Please reduce your request rate|ThrottlingException|RequestLimitExceeded|TooManyRequests|HTTP Error 503",
        _S,
        "the object store is overloaded",
    ),
    Rule(
        "store-error",
        _CALL.format(codes=r"InternalError|ServiceUnavailable|RequestTimeout|RequestTimeTooSkewed|OperationAborted|5\d\d"),
        _S,
        "the object store failed",
    ),
    Rule(
        "store-unreachable",
        r"EndpointConnectionError|ConnectTimeoutError|Could not connect to the endpoint URL|ConnectionClosedError: Connection was closed",
        _S,
        "the object store cannot be reached",
    ),
    Rule(
        "store-read",
        r"ReadTimeoutError: Read timeout on endpoint|ResponseStreamingError|IncompleteRead(?:Error)?\b|"
        r"ProxyConnectionError|botocore\.exceptions\.HTTPClientError",
        _S,
        "the object store broke off an answer",
    ),
    Rule("store-unavailable", r"ObjectStoreUnavailable", _S, "the object store did not do what was asked in time"),
    Rule("disk-full", r"\[Errno 28\]|No space left on device|\(os error 28\)", _S, "a disk is full"),
    Rule("quota", r"\[Errno 122\]|Disk quota exceeded", _S, "a quota of disk space is used up"),
    Rule("stale-handle", r"\[Errno 116\]|Stale (?:NFS )?file handle", _S, "a network file system lost a file that was open"),
    Rule(
        "disk-error",
        r"\[Errno 5\] Input/output error|failed with Input/output error|: Input/output error|\(os error 5\)|blk_update_request: I/O error",
        _S,
        "a disk cannot be read or written",
    ),
    Rule(
        "file-system-gone",
        r"\[Errno 107\]|\[Errno 108\]|Transport endpoint is not connected: '|transport endpoint shutdown|\[Errno 19\] No such device",
        _S,
        "a network file system is gone",
    ),
    Rule("read-only", r"\[Errno 30\]|Read-only file system", _S, "a file system is read-only"),
    Rule(
        "file-write",
        r"PytorchStreamWriter failed writing|Unable to write to file|fd \d+ failed with|file write failed",
        _S,
        "a file cannot be written",
    ),
    Rule(
        "file-damaged",
        r"failed finding central directory|PytorchStreamReader failed|invalid header or archive is corrupted|"
        r"SafetensorError: Error while deserializing",
        _S,
        "a saved file is damaged or cut short",
    ),
    Rule(
        "cloud-store",
        r"google\.api_core\.exceptions\.(?:ServiceUnavailable|TooManyRequests|InternalServerError|GatewayTimeout|"
        r"DeadlineExceeded|RetryError|BadGateway)|gcsfs\.retry\.HttpError: .{0,80}(?:429|5\d\d)|"
        r"azure\.core\.exceptions\.(?:ServiceRequest|ServiceResponse|HttpResponse|IncompleteRead)\w*Error|"
        r"S3 operation failed; code: (?:SlowDown|InternalError|ServiceUnavailable)",
        _S,
        "the object store failed",
    ),
    Rule(
        "file-open",
        r"RuntimeError: File .{1,300} cannot be opened|\[Errno 121\] Remote I/O error|\[Errno 110\] Connection timed out: '",
        _S,
        "a file cannot be opened for its file system",
    ),
    Rule(
        "file-truncated",
        r"pickle data was truncated|Invalid magic number; corrupt file|unexpected EOF, expected \d+ more bytes",
        _S,
        "a saved file is damaged or cut short",
    ),
)
