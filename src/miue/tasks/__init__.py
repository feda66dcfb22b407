"""Tasks: calls that write one part each, run in this process, in local processes, or on a Ray cluster."""

from __future__ import annotations

from miue.tasks.executor import EXECUTORS, LOCAL, Executor, run_tasks
from miue.tasks.shards import ALL, MOST_SHARDS, Shard
from miue.tasks.task import Task, report_share, reporting_part, shares_shown

__all__ = [
    "ALL",
    "EXECUTORS",
    "LOCAL",
    "MOST_SHARDS",
    "Executor",
    "Shard",
    "Task",
    "report_share",
    "reporting_part",
    "run_tasks",
    "shares_shown",
]
