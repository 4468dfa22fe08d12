"""A cloud's metadata service as a source of notices: one address that is asked again and again.

Holds: the answer's shape says which cloud it is. A service that is away, or answers nonsense, announces nothing; what it announced before
stands.
Never: goes through a proxy; the service speaks to this machine alone.
"""

from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request, build_opener

from trainhouse.workers.agent.node.notice_formats import TerminationNotice, by_metadata
from trainhouse.workers.agent.node.notice_sources import NoticeSourceError

TIMEOUT_S = 2.0
MAX_BYTES = 256 * 1024
# GCP and Azure answer only who sends theirs; nobody minds the other's.
HEADERS = {"Metadata-Flavor": "Google", "Metadata": "true"}
TOKEN_PATH = "/latest/api/token"  # nosec B105  # a path
TOKEN_HEADER = "X-aws-ec2-metadata-token"  # nosec B105  # a header's name
TOKEN_LIFE_S = 21_600


class MetadataService:
    """`url`: the page of the announcement itself; `resource`: this machine's name in Azure's lists."""

    def __init__(self, url: str, interval_s: float, resource: str | None = None) -> None:
        self._url = url
        self.interval_s = interval_s
        self._resource = resource
        self._open: OpenerDirector = build_opener(ProxyHandler({}), HTTPHandler(), HTTPSHandler())
        self._token: str | None = None

    @property
    def name(self) -> str:
        return self._url

    def look(self) -> TerminationNotice | None:
        """Asks once, with a token of AWS's where one is wanted. Blocks up to a few times TIMEOUT_S."""
        status, body = self._get()
        if status == 401:  # AWS, and the token is over, or there was none
            self._token = self._new_token()
            status, body = self._get()
        if status == 404:
            return None
        if status != 200:
            raise NoticeSourceError(f"it answers {status}")
        try:
            return by_metadata(body, self._resource)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NoticeSourceError(str(error)) from error

    def _get(self) -> tuple[int, str]:
        return self._ask(self._url, "GET", HEADERS | ({TOKEN_HEADER: self._token} if self._token else {}))

    def _new_token(self) -> str:
        parts = urlsplit(self._url)
        url = urlunsplit((parts.scheme, parts.netloc, TOKEN_PATH, "", ""))
        status, body = self._ask(url, "PUT", {f"{TOKEN_HEADER}-ttl-seconds": str(TOKEN_LIFE_S)})
        if status != 200:
            raise NoticeSourceError(f"it wants a token and answers {status} to {TOKEN_PATH}")
        return body.strip()

    def _ask(self, url: str, method: str, headers: Mapping[str, str]) -> tuple[int, str]:
        try:
            with self._open.open(Request(url, method=method, headers=dict(headers)), timeout=TIMEOUT_S) as answer:
                return int(answer.status), answer.read(MAX_BYTES).decode("utf-8", "replace")
        except HTTPError as error:
            error.close()
            return error.code, ""
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise NoticeSourceError(str(error)) from error
