"""Tasks: calls that write one part each, run in this process, in local processes, or on a Ray cluster."""

from __future__ import annotations

from miue.common.tasks.executor import ALL, EXECUTORS, LOCAL, MOST_SHARDS, Executor, Shard, parse_shard, run_tasks
from miue.common.tasks.task import Task, WorkerError, report_share, reporting_part, shares_shown

__all__ = [
    "ALL",
    "EXECUTORS",
    "LOCAL",
    "MOST_SHARDS",
    "Executor",
    "Shard",
    "Task",
    "WorkerError",
    "parse_shard",
    "report_share",
    "reporting_part",
    "run_tasks",
    "shares_shown",
]
