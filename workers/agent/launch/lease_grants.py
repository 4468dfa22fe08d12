"""Grants and signatures for the object store: the part that knows the store's key.

Holds: every answer rests on `lease.access_rule`; what it rests on is read from the store once per attempt. Signatures carry the store's
time, so a wrong clock of this machine costs a warning.
Another project's version is read by its grant alone, which is looked up at each request.
Never: raises because the store is away: the answer says so, and the rank asks again. Lets bytes of objects pass.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Protocol

import boto3
import structlog
import urllib3
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, HashedStore
from trainhouse.checkpointing.chain.restore_candidates import resume_from_of
from trainhouse.checkpointing.errors import (
    CheckpointError,
    DamagedError,
    NoArtifactError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
    RetryableError,
)
from trainhouse.checkpointing.lease.access_rule import (
    Ask,
    DatasetLease,
    Lease,
    Operation,
    is_artifact_of_another,
    is_of_dataset,
    job_in,
    refusal,
    shared_chunk,
)
from trainhouse.checkpointing.lease.lease_facts import owned, resumable, shared_chunks_of
from trainhouse.checkpointing.lease.policy import policy_of
from trainhouse.checkpointing.lease.signing import Signer, base_url
from trainhouse.checkpointing.lease.wire import LeaseReply, SessionKeys
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.stores.s3_errors import why
from trainhouse.events import GangAllocated, JobSpec
from trainhouse.events.model.artifact_keys import manifest_key, object_key
from trainhouse.events.model.dataset import NamedArtifact
from trainhouse.events.model.dataset_grant import GrantKey
from trainhouse.events.model.version_names import VersionName
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.stored_versions import read_manifest, shards_of

LOOK_DEADLINE_S = 10.0
CLOCK_AGAIN_S = 300.0
CLOCK_WARNING_S = 60.0
CLOCK_STEP_S = 2.0
KEYS_FOR_S = 900
# Of a store that gives no keys at all, or none to this agent; every other refusal may pass, or is of one attempt.
NO_STS = frozenset({"AccessDenied", "NotImplemented", "InvalidAction", "MethodNotAllowed"})
NO_STS_MESSAGES = ("STS service not initialized", "STS service not available", "STS is not configured")  # SeaweedFS's, as a 503
# Of a lease that makes a longer policy than the store takes: this attempt's requests are signed.
NO_SUCH_POLICY = frozenset({"PackedPolicyTooLarge", "MalformedPolicyDocument", "ValidationError"})
log = structlog.get_logger(__name__)


class Grants(Protocol):
    """Grants of datasets to other projects; see `grant_reader`."""

    def covers(self, key: GrantKey) -> bool: ...
    def why_not(self, key: GrantKey) -> str: ...
    def close(self) -> None: ...


@dataclass
class Tenant:
    """One attempt, as its allocation says, and what of its lease is known by now. `grant`: by which it reads another project's version."""

    job_id: str
    epoch: int
    project: str
    resume_from: str | None
    dataset: DatasetLease | None = None
    grant: GrantKey | None = None
    outputs: frozenset[str] = frozenset()
    lease: Lease | None = None
    shared: dict[str, frozenset[str]] = field(default_factory=dict)
    first_epochs: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    not_resumable: CheckpointError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, allocation: GangAllocated) -> "Tenant":
        spec = allocation.spec
        dataset, grant = _of_data(spec)
        return cls(str(allocation.job_id), int(allocation.epoch), spec.project, spec.resume_from, dataset, grant, frozenset(spec.outputs))


def _of_data(spec: JobSpec) -> tuple[DatasetLease | None, GrantKey | None]:
    """Leave to the version that a spec names, and the grant that this takes where the version is another project's."""
    data = spec.data
    if data is None or data.dataset is None or not data.content_sha256:
        return None, None
    owner = data.owner or spec.project
    lease = DatasetLease(owner, data.content_sha256)
    if owner == spec.project:
        return lease, None
    dataset = VersionName.parse(data.dataset).dataset
    return lease, GrantKey(dataset, data.content_sha256, spec.project, data.purpose or spec.purpose or "")


class LeaseDesk:
    """Of one agent. Safe to share by threads. `settings`: the store with the agent's own key."""

    def __init__(self, settings: StoreSettings, objects: HashedStore | None = None, grants: Grants | None = None) -> None:
        self._settings = settings
        self._objects = objects or S3ObjectStore(settings.model_copy(update={"deadline_s": LOOK_DEADLINE_S}))
        self._clock = StoreClock(settings)
        self._keys = Keys(settings)
        self._signer = Signer(settings, self._keys, self._clock.now_s)
        self._no_sts = False
        self._grants = grants

    def ready(self, tenant: Tenant, asks: list[Ask]) -> bool:
        """Returns whether `answer` would return at once."""
        if tenant.lease is None or self._clock.due():
            return False
        return all(self._known(tenant, tenant.lease, ask) for ask in asks)

    def answer(self, tenant: Tenant, asks: list[Ask]) -> list[LeaseReply]:
        """One answer for each, in order. May block on the store, for LOOK_DEADLINE_S at most."""
        with tenant.lock:
            try:
                self._clock.look()
                if tenant.lease is None:
                    first = owned(self._objects, tenant.job_id, tenant.project, tenant.epoch)
                    tenant.first_epochs[tenant.job_id] = first.first_epoch
                    tenant.lease = Lease(
                        tenant.job_id, tenant.epoch, dataset=tenant.dataset, outputs=tenant.outputs, project=tenant.project
                    )
            except Exception as error:
                return [_failed(error)] * len(asks)
            answers: list[LeaseReply] = []
            away: LeaseReply | None = None  # then each further ask would wait for the store as long again
            for ask in asks:
                known = self._known(tenant, tenant.lease, ask)
                answers.append(self._answer(tenant, ask) if known or away is None else away)
                if not known and answers[-1].get("kind") == "unavailable":
                    away = answers[-1]
            return answers

    def session(self, tenant: Tenant) -> SessionKeys | LeaseReply | None:
        """Keys that end by themselves and allow the same; None where the store gives none. Blocks on the store."""
        role = self._settings.sts_role_arn
        if role is None or self._no_sts:
            return None
        lease = self.lease_of(tenant)
        if not isinstance(lease, Lease):
            return lease
        try:
            return self._assumed(role, lease)
        except ClientError as error:
            failure = error.response.get("Error", {})
            code, message = failure.get("Code"), failure.get("Message", "")
            none_at_all = code in NO_STS or any(known in message for known in NO_STS_MESSAGES)
            if not none_at_all and code not in NO_SUCH_POLICY:
                return LeaseReply(kind="unavailable", why=f"the store gives no keys just now: {why(error)}")
            log.warning("the store gives no keys for ranks: each of their requests is signed instead", role=role, error=why(error))
            self._no_sts = self._no_sts or none_at_all
            return None
        except ResponseParserError:  # of a store without STS, or of a proxy before it: this attempt's requests are signed
            log.warning("what the store answered is not STS's: each of this attempt's requests is signed instead", role=role)
            return None
        except (BotoCoreError, HTTPError) as error:
            return LeaseReply(kind="unavailable", why=f"the store's STS does not answer: {why(error)}")

    def lease_of(self, tenant: Tenant) -> Lease | LeaseReply:
        """The lease, with the job that it resumes from if that is of its project; or why there is none. Blocks on the store."""
        if tenant.lease is None:
            failed = self.answer(tenant, [Ask(Operation.LIST, f"jobs/{tenant.job_id}/commits/")])
            if tenant.lease is None:
                return failed[0]
        with tenant.lock:
            try:
                self._learn_resumes(tenant)
            except CheckpointError as error:
                log.warning("what the job resumes from is not for it", job=tenant.job_id, error=str(error))
            return tenant.lease

    def _answer(self, tenant: Tenant, ask: Ask) -> LeaseReply:
        assert tenant.lease is not None
        try:
            if tenant.resume_from and job_in(ask.key) == self._wanted(tenant):
                self._learn_resumes(tenant)
            if shared_chunk(ask.key) is not None:
                self._learn_shared(tenant)
            if is_of_dataset(ask.key) or is_artifact_of_another(tenant.lease, ask.key):
                self._check_grant(tenant)
                self._learn_shards(tenant)
        except Exception as error:
            return _failed(error)
        reason = refusal(tenant.lease, ask)
        if reason is not None:
            tenant.refused += 1
            if tenant.refused & (tenant.refused - 1) == 0:  # the 1st, 2nd, 4th … : a rank cannot fill the log
                log.warning("a rank asked for what it has no right to", reason=reason, times=tenant.refused)
            return LeaseReply(kind="refused", why=reason)
        signed = self._signer.sign(ask)
        return LeaseReply(url=signed.url, headers=signed.headers)

    def _wanted(self, tenant: Tenant) -> str:
        """The job that it wants to resume from. Raises InvalidStateError."""
        assert tenant.resume_from is not None
        return str(resume_from_of(tenant.resume_from).job_id)

    def _learn_resumes(self, tenant: Tenant) -> None:
        """Looks up the job that it resumes from, once, if that is of its project. Raises CheckpointError."""
        assert tenant.lease is not None
        if tenant.lease.resumes is not None or not tenant.resume_from:
            return
        if tenant.not_resumable is not None:
            raise tenant.not_resumable.with_traceback(None)
        try:
            wanted = self._wanted(tenant)
            if wanted != tenant.job_id:
                tenant.first_epochs[wanted] = resumable(self._objects, wanted, tenant.project).first_epoch
        except RetryableError:
            raise
        except CheckpointError as error:
            tenant.not_resumable = error
            raise
        tenant.lease = replace(tenant.lease, resumes=wanted)

    def _learn_shared(self, tenant: Tenant) -> None:
        """Looks up the shared chunks that its checkpoints name. Raises CheckpointError."""
        assert tenant.lease is not None
        if tenant.resume_from:
            try:
                self._learn_resumes(tenant)
            except RetryableError:
                raise
            except CheckpointError:
                pass  # its own it may read all the same
        for job_id, first_epoch in tenant.first_epochs.items():
            if job_id not in tenant.shared:
                tenant.shared[job_id] = shared_chunks_of(self._objects, job_id, first_epoch)
                tenant.lease = replace(tenant.lease, shared_chunks=tenant.lease.shared_chunks | tenant.shared[job_id])

    def _known(self, tenant: Tenant, lease: Lease, ask: Ask) -> bool:
        """Whether the answer waits for nothing."""
        granted = tenant.grant is None or (self._grants is not None and self._grants.covers(tenant.grant))
        return _known(tenant, lease, ask) and (granted or not (is_of_dataset(ask.key) or is_artifact_of_another(lease, ask.key)))

    def _check_grant(self, tenant: Tenant) -> None:
        """Makes sure of the grant by which it reads another project's version. Raises ObjectStoreRefusedError where it was revoked, and
        ObjectStoreUnavailableError where that is not known."""
        if tenant.grant is None or (self._grants is not None and self._grants.covers(tenant.grant)):
            return
        if self._grants is None:
            raise ObjectStoreUnavailableError("this agent does not read grants of datasets, and the job's version is another project's")
        if reason := self._grants.why_not(tenant.grant):
            raise ObjectStoreRefusedError(reason)

    def close(self) -> None:
        """Ends the reading of grants."""
        if self._grants is not None:
            self._grants.close()

    def _learn_shards(self, tenant: Tenant) -> None:
        """Looks up the shards of the version that its spec names, once. Raises CheckpointError, DamagedShardError."""
        assert tenant.lease is not None
        dataset = tenant.lease.dataset
        if dataset is not None and not dataset.shards:
            manifest = read_manifest(self._objects, dataset.project, dataset.sha256)
            shards = frozenset(shard.sha256 for _, shard in shards_of(manifest))
            artifacts = frozenset(self._artifact_keys(dataset.project, manifest.artifacts))
            tenant.lease = replace(tenant.lease, dataset=replace(dataset, shards=shards, artifacts=artifacts))

    def _artifact_keys(self, project: str, named: Iterable[NamedArtifact]) -> Iterator[str]:
        """Keys of these artifacts and of their files; none of one that is missing or damaged, since the dataset is read without it too."""
        artifacts = ArtifactStore(self._objects, project)
        for each in named:
            try:
                files = artifacts.manifest(each.sha256).files
            except (NoArtifactError, DamagedError) as error:
                log.warning("ranks may not read an artifact that their dataset names", artifact=each.name, error=str(error))
                continue
            yield manifest_key(project, each.sha256)
            yield from (object_key(project, file.sha256) for file in files)

    def _assumed(self, role: str, lease: Lease) -> SessionKeys:
        given, keys = self._settings, self._keys()
        sts = boto3.session.Session().client(
            "sts",
            endpoint_url=given.sts_endpoint or given.endpoint,
            region_name=given.region,
            aws_access_key_id=keys.access_key,
            aws_secret_access_key=keys.secret_key,
            aws_session_token=keys.token,
            verify=given.ca_file,
        )
        name = re.sub(r"[^\w+=,.@-]", "-", f"{lease.job_id[:50]}-{lease.epoch}")
        policy = json.dumps(policy_of(lease, given.bucket), separators=(",", ":"))
        found = sts.assume_role(RoleArn=role, RoleSessionName=name, Policy=policy, DurationSeconds=KEYS_FOR_S)["Credentials"]
        return SessionKeys(
            access_key=found["AccessKeyId"],
            secret_key=found["SecretAccessKey"],
            token=found["SessionToken"],
            expires=found["Expiration"].isoformat(),
        )


class StoreClock:
    """The store's clock, as far as its answers show it; this machine's where they do not.

    Holds: between two looks it goes on with the steady clock, so that a wall clock that is set, wrong or right, changes no signature.
    """

    def __init__(
        self, settings: StoreSettings, wall_s: Callable[[], float] | None = None, steady_s: Callable[[], float] | None = None
    ) -> None:
        self._url = settings.endpoint or base_url(settings)
        self._ca_file = settings.ca_file
        self._wall_s, self._steady_s = wall_s or time.time, steady_s or time.monotonic
        self._seen: _Seen | None = None

    def now_s(self) -> float:
        """Seconds since 1970."""
        seen = self._seen
        return self._wall_s() if seen is None else seen.store_s + self._steady_s() - seen.steady_s

    def due(self) -> bool:
        """Returns whether it should be looked at again: after a while, and when this machine's clock was set or the machine slept."""
        seen = self._seen
        if seen is None:
            return True
        passed_s = self._steady_s() - seen.steady_s
        return passed_s > CLOCK_AGAIN_S or abs(self._wall_s() - seen.wall_s - passed_s) > CLOCK_STEP_S

    def look(self) -> None:
        """Asks the store for its time if that is due. Blocks; a store that is away changes nothing. Raises ObjectStoreUnavailableError."""
        if not self.due():
            return
        try:
            with urllib3.PoolManager(ca_certs=self._ca_file, timeout=urllib3.Timeout(5.0), retries=False) as pool:
                date = pool.request("HEAD", self._url).headers.get("date")
        except (HTTPError, OSError) as error:
            raise ObjectStoreUnavailableError(f"{self._url} does not answer ({error}); is the store up?") from error
        wall_s, steady_s = self._wall_s(), self._steady_s()
        ahead_s = 0.0 if date is None else parsedate_to_datetime(date).timestamp() - wall_s
        # The header has whole seconds, so a small difference shows nothing.
        self._seen = _Seen(wall_s + ahead_s if abs(ahead_s) > CLOCK_STEP_S else wall_s, wall_s, steady_s)
        if abs(ahead_s) > CLOCK_WARNING_S:
            log.warning(
                "this machine's clock is not the store's: ranks' requests carry the store's time; set the clock", off_s=round(-ahead_s)
            )


@dataclass(frozen=True, slots=True)
class _Seen:
    """One look at the store's clock, with this machine's two clocks at that instant."""

    store_s: float
    wall_s: float
    steady_s: float


def _known(tenant: Tenant, lease: Lease, ask: Ask) -> bool:
    if shared_chunk(ask.key) is not None:
        return tenant.shared.keys() >= tenant.first_epochs.keys() and (not tenant.resume_from or lease.resumes is not None)
    if is_of_dataset(ask.key) or is_artifact_of_another(lease, ask.key):
        return lease.dataset is None or bool(lease.dataset.shards)
    return not tenant.resume_from or lease.resumes is not None or job_in(ask.key) in (None, tenant.job_id)


def _failed(error: Exception) -> LeaseReply:
    known = isinstance(error, CheckpointError | DamagedShardError)
    return LeaseReply(
        kind="refused" if known and not isinstance(error, RetryableError) else "unavailable",
        why=str(error) if known else f"leave to the store: {type(error).__name__}: {error}",
    )


class Keys:
    """The agent's own credentials: those of the settings, else what boto3's chain finds, renewed where they end."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._chain = None if settings.access_key else boto3.session.Session().get_credentials()

    def __call__(self) -> ReadOnlyCredentials:
        """Returns the current credentials. Raises ObjectStoreUnavailableError if there are none."""
        if self._settings.access_key and self._settings.secret_key:
            return ReadOnlyCredentials(self._settings.access_key, self._settings.secret_key.get_secret_value(), None)
        if self._chain is None:
            raise ObjectStoreUnavailableError(
                f"{self._settings.address}: this agent has no keys for it (TRAINHOUSE_S3_ACCESS_KEY, …_SECRET_KEY)"
            )
        return self._chain.get_frozen_credentials()
