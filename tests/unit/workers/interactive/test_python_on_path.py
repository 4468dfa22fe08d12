"""`python` in a terminal is the job's own, wherever its agent was started."""

from __future__ import annotations

from trainhouse.workers.interactive.__main__ import path_with_python


def test_the_jobs_python_comes_first() -> None:
    assert path_with_python("/usr/bin:/bin", "/opt/env/bin/python3") == "/opt/env/bin:/usr/bin:/bin"
    assert path_with_python("", "/opt/env/bin/python3") == "/opt/env/bin", "an empty part of it would be the working folder"
