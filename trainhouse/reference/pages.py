"""All generated pages, by their path in the documentation."""

from collections.abc import Callable

from trainhouse.reference import command_pages, event_pages, model_pages, operation_pages, repository_pages, setting_pages
from trainhouse.scheduler.core.state.transitions import render_markdown

PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": command_pages.commands,
    "reference/job-spec.md": model_pages.job_spec,
    "reference/policy.md": model_pages.policy,
    "reference/job-states.md": lambda: f"# States of a job\n\nEvery way from one state to another, and its reason.\n\n{render_markdown()}",
    "reference/events.md": event_pages.events,
    "reference/http-api.md": operation_pages.http_api,
    "reference/settings.md": setting_pages.settings,
    **repository_pages.PAGES,
}


def render() -> dict[str, str]:
    """The Markdown of each page."""
    return {name: make() for name, make in PAGES.items()}
