"""Types of options: of any, and of those that several networks, encoders and methods have, with their range."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Width = Annotated[int, Field(ge=1, lt=1 << 31)]
"""Number of units of a layer."""

Rate = Annotated[float, Field(ge=0, lt=1)]
"""Probability that a unit drops out: below 1, where all would, so that the network saw nothing of any bag."""

Scalar = bool | int | float | str | None

Option = Scalar | list[Scalar]
"""A value that an option can have: what a file of settings and a command line can say."""
