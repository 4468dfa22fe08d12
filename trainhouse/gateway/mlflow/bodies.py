"""The requests of MLflow's clients, checked: names and sizes as MLflow's own server bounds them.

Holds: a 64 bit number may come as a number or as text, as protocol buffers have it in JSON; what a client knows and we do not is ignored.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_METRICS = 1000
MAX_PARAMETERS = 100
MAX_ENTITIES = 1000
MAX_PARAMETER_CHARS = 6000
MAX_TAG_CHARS = 8000
MAX_EXPERIMENT_TAG_CHARS = 20_000
MAX_RUNS = 50_000
MAX_EXPERIMENTS = 50_000
MAX_HISTORY = 25_000
MAX_LOGGED_MODELS = 1000
MODELS_OF_A_PAGE = 100
"""A client may ask for more, and is given the token of the next page: each comes with all of its parameters and tags."""

_NAME = r"^[^\x00-\x1f]+$"
Key = Annotated[str, StringConstraints(min_length=1, max_length=250, pattern=_NAME)]
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
ModelId = Annotated[str, StringConstraints(max_length=34, pattern=r"^m-[0-9a-f]{32}$")]
ExperimentId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]
PageToken = Annotated[str, StringConstraints(max_length=64)]
Status = Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"]
View = Literal["ACTIVE_ONLY", "DELETED_ONLY", "ALL"]
Milliseconds = Annotated[int, Field(ge=0, le=4_000_000_000_000)]


class Body(BaseModel):
    """A request. Unknown fields are newer clients'."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")


class OfRun(Body):
    """A request about one run; old clients call its id run_uuid."""

    run_id: RunId

    @model_validator(mode="before")
    @classmethod
    def _old_name(cls, data: object) -> object:
        if isinstance(data, dict) and not data.get("run_id") and data.get("run_uuid"):
            return data | {"run_id": data["run_uuid"]}
        return data


class Tag(Body):
    key: Key
    value: Annotated[str, StringConstraints(max_length=MAX_TAG_CHARS)] = ""


class Parameter(Body):
    key: Key
    value: Annotated[str, StringConstraints(max_length=MAX_PARAMETER_CHARS)] = ""


class Metric(Body):
    """One point. Steps count from 0; the time is milliseconds since 1970."""

    key: Key
    value: float
    timestamp: Milliseconds
    step: Annotated[int, Field(ge=0, lt=2**63)] = 0


class CreateRun(Body):
    experiment_id: ExperimentId
    user_id: Annotated[str, StringConstraints(max_length=256)] = ""
    run_name: Annotated[str, StringConstraints(max_length=250)] = ""
    start_time: Milliseconds | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_PARAMETERS)] = []


class UpdateRun(OfRun):
    status: Status | None = None
    end_time: Milliseconds | None = None
    run_name: Annotated[str, StringConstraints(max_length=250)] | None = None


class LogMetric(OfRun, Metric):
    pass


class LogParameter(OfRun, Parameter):
    pass


class SetTag(OfRun, Tag):
    pass


class DeleteTag(OfRun):
    key: Key


class LogBatch(OfRun):
    metrics: Annotated[list[Metric], Field(max_length=MAX_METRICS)] = []
    params: Annotated[list[Parameter], Field(max_length=MAX_PARAMETERS)] = []
    tags: Annotated[list[Tag], Field(max_length=MAX_PARAMETERS)] = []

    @model_validator(mode="after")
    def _bounded(self) -> "LogBatch":
        total = len(self.metrics) + len(self.params) + len(self.tags)
        if total > MAX_ENTITIES:
            raise ValueError(f"a batch has at most {MAX_ENTITIES} metrics, params and tags together; this one has {total}")
        return self


class Dataset(Body):
    name: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    digest: Annotated[str, StringConstraints(min_length=1, max_length=36)]
    source_type: Annotated[str, StringConstraints(max_length=256)] = ""
    source: Annotated[str, StringConstraints(max_length=65_535)] = ""
    schema_text: Annotated[str, StringConstraints(max_length=65_535)] = Field("", alias="schema")
    profile: Annotated[str, StringConstraints(max_length=65_535)] = ""


class DatasetInput(Body):
    tags: Annotated[list[Tag], Field(max_length=MAX_PARAMETERS)] = []
    dataset: Dataset


class ModelInput(Body):
    model_id: ModelId


class ModelOutput(ModelInput):
    step: Annotated[int, Field(ge=0, lt=2**63)] = 0


class LogInputs(OfRun):
    datasets: Annotated[list[DatasetInput], Field(max_length=1000)] = []
    models: Annotated[list[ModelInput], Field(max_length=1000)] = []


class LogOutputs(OfRun):
    models: Annotated[list[ModelOutput], Field(max_length=1000)] = []


class CreateLoggedModel(Body):
    experiment_id: ExperimentId
    name: Annotated[str, StringConstraints(max_length=500)] = ""
    model_type: Annotated[str, StringConstraints(max_length=500)] = ""
    source_run_id: RunId | None = None
    params: Annotated[list[Parameter], Field(max_length=MAX_ENTITIES)] = []
    tags: Annotated[list[Tag], Field(max_length=MAX_ENTITIES)] = []


class FinalizeLoggedModel(Body):
    status: Literal["LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"]


class LoggedModelTags(Body):
    tags: Annotated[list[Tag], Field(max_length=MAX_ENTITIES)] = []


class LoggedModelParameters(Body):
    params: Annotated[list[Parameter], Field(max_length=MAX_ENTITIES)] = []


class OrderOfModels(Body):
    field_name: Annotated[str, StringConstraints(max_length=600)]
    ascending: bool = True


def _page_of_models(asked: int) -> int:
    return min(asked, MODELS_OF_A_PAGE)


class SearchLoggedModels(Body):
    experiment_ids: Annotated[list[ExperimentId], Field(max_length=1000)] = []
    filter: Annotated[str, StringConstraints(max_length=20_000)] = ""
    datasets: Annotated[list[object], Field(max_length=1000)] = []
    max_results: Annotated[int, Field(ge=1, le=MAX_LOGGED_MODELS), AfterValidator(_page_of_models)] = MODELS_OF_A_PAGE
    order_by: Annotated[list[OrderOfModels], Field(max_length=20)] = []
    page_token: PageToken | None = None


class SearchRuns(Body):
    experiment_ids: Annotated[list[ExperimentId], Field(max_length=1000)] = []
    filter: Annotated[str, StringConstraints(max_length=20_000)] = ""
    run_view_type: View = "ACTIVE_ONLY"
    max_results: Annotated[int, Field(ge=1, le=MAX_RUNS)] = 1000
    order_by: Annotated[list[Annotated[str, StringConstraints(max_length=600)]], Field(max_length=20)] = []
    page_token: PageToken | None = None


class CreateExperiment(Body):
    name: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=_NAME)]
    tags: Annotated[list["ExperimentTag"], Field(max_length=MAX_PARAMETERS)] = []


class ExperimentTag(Body):
    key: Key
    value: Annotated[str, StringConstraints(max_length=MAX_EXPERIMENT_TAG_CHARS)] = ""


class OfExperiment(Body):
    experiment_id: ExperimentId


class UpdateExperiment(OfExperiment):
    new_name: str = ""


class SetExperimentTag(OfExperiment, ExperimentTag):
    pass


class DeleteExperimentTag(OfExperiment):
    key: Key


class SearchExperiments(Body):
    max_results: Annotated[int, Field(ge=1, le=MAX_EXPERIMENTS)] = 1000
    page_token: PageToken | None = None
    filter: Annotated[str, StringConstraints(max_length=20_000)] = ""
    order_by: Annotated[list[Annotated[str, StringConstraints(max_length=600)]], Field(max_length=20)] = []
    view_type: View = "ACTIVE_ONLY"
