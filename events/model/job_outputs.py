"""Outputs of jobs: what agents report of them, what their scheduler decides, and the answer of intake.

Holds: a job's outputs are versions of the datasets that its spec names, in its own project; they are asked for when every rank has exited
with code 0, again while no answer comes, and the job ends by the answers.
Never: a sample's content.
"""

from pydantic import Field

from trainhouse.events.model.attempt import AttemptReport
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import CutText, SmallCount, TimestampMs
from trainhouse.events.model.dataset import DatasetVersion
from trainhouse.events.model.dataset_names import DatasetName
from trainhouse.events.model.ids import Epoch, JobId, PoolName
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.spec import (
    MOST_OUTPUTS,
)


class OutputsSealed(AttemptReport, type="trainhouse.attempt.outputs-sealed.v1"):
    """Manifests and shards of all outputs of an attempt whose ranks have all exited with code 0 are in the store; or why they cannot be."""

    versions: tuple[DatasetVersion, ...] = Field((), max_length=MOST_OUTPUTS, description="facts of each output; none if one is not whole")
    failure: CutText = Field("", description="why there is no whole output; empty: there is")
    at_ms: TimestampMs


class OutputsNoted(Event, type="trainhouse.decision.outputs-noted.v1"):
    """A job's scheduler takes the report of an attempt's outputs. They are published only if the job ends well."""

    report: OutputsSealed = Field(description="the report")

    def subject(self) -> str:
        return str(self.report.job_id)


class OutputsRequested(Event, type="trainhouse.decision.outputs-requested.v1"):
    """Every rank exited with code 0: intake is asked to publish the job's outputs, and the job ends by its answers."""

    job_id: JobId
    epoch: Epoch
    pool: PoolName
    user: Label = Field("unknown", description="user of the job, who publishes")
    versions: tuple[DatasetVersion, ...] = Field(max_length=MOST_OUTPUTS, description="facts of each output without an answer")
    number: SmallCount = Field(1, description="number of the request, counted from 1; later ones repeat it because no answer came")

    def subject(self) -> str:
        return str(self.job_id)


class OutputAnswered(Event, type="trainhouse.dataset.output-answered.v1"):
    """Intake published an output of a job, or refused it."""

    job_id: JobId
    pool: PoolName
    partition: int = Field(ge=0, lt=1024, description="partition of control that the pool was on")
    dataset: DatasetName = Field(description="name of the output")
    sha256: Sha256 = Field(description="SHA-256 of the version's manifest, in hexadecimal")
    refusal: CutText = Field("", description="why it is not published; empty: it is")

    def subject(self) -> str:
        return str(self.job_id)
