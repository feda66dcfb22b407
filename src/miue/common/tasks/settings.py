"""Where tasks run, as a command and Python say it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from miue.common.settings import DeviceSettings, Settings
from miue.common.tasks.executor import Executor
from miue.common.text import RUNNING


class ExecutorSettings(Settings):
    """Where tasks run, which does not change what they write."""

    heading = RUNNING

    executor: Literal["local", "processes", "ray"] | None = Field(
        default=None,
        description="Where to compute: here, in processes of this machine (default with several jobs), or on a "
        "Ray cluster.",
    )
    jobs: int | None = Field(
        default=None,
        ge=1,
        description="Tasks at a time, which share the cores equally; by default one on each core.",
    )
    address: str | None = Field(
        default=None, description="HOST:PORT of a Ray cluster; by default that of this machine."
    )

    def to_executor(self) -> Executor:
        """Return the executor.

        Raises:
            ConfigError: an option that it does not take.
        """
        kind = self.executor or ("ray" if self.address else "processes" if (self.jobs or 1) > 1 else "local")
        return Executor(kind, self.jobs, self.address or "auto")


class ComputeSettings(ExecutorSettings, DeviceSettings):
    """Where tasks run, and on which device."""
