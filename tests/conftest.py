"""Loads the fixtures, and with them torch and Lightning, in each process that runs tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    hands_tests_out = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not hands_tests_out:  # the one that does waits for what it loads before it starts the others
        config.pluginmanager.import_plugin("shared_fixtures")
