"""Settings of a function and its command: one class that Python, a TOML file and the command line fill in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from miue.common.errors import MiueError, unknown_name, wrong_type
from miue.common.text import RUNNING
from miue.common.values import plain, refusal

Names = Annotated[tuple[str, ...], Strict(False)]
"""Several names, of which a list is as good as a tuple."""

Location = Annotated[Path, Strict(False)]
"""A path, of which a text is as good."""


class Settings(BaseModel):
    """Values by name, each with a sentence that says what it is.

    The command line has a flag for each field but those of ``for_python``, listed under the heading of its class.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)
    heading: ClassVar[str] = "Options"
    other_names: ClassVar[Mapping[str, str]] = {}
    """Settings by what other tools call them, for messages."""

    @model_validator(mode="before")
    @classmethod
    def _of_python(cls, values: Any) -> Any:
        return plain(values)

    @classmethod
    def of(cls, values: Self | Mapping[str, Any] | None = None, **direct: Any) -> Self:
        """Return settings that are such already or values by name; those passed directly count before them.

        Raises:
            ConfigError: a name that does not exist, or a value of another type or out of range.
        """
        if not isinstance(values, Settings | Mapping | None):
            raise wrong_type("settings", f"values by name, or {cls.__name__}(…)", values, "pass a dictionary")
        given = values.given() if isinstance(values, Settings) else dict(values or {})
        given |= {name: value for name, value in direct.items() if value is not None}
        for name in given:
            if name not in cls.model_fields:
                meant = cls.other_names.get(name)
                raise unknown_name("setting", name, {*cls.model_fields, *filter(None, [meant])}, meant)
        try:
            return cls(**given)
        except ValidationError as error:
            problems = error.errors()
            if isinstance(cause := problems[0].get("ctx", {}).get("error"), MiueError):
                raise cause from error
            name = str(problems[0]["loc"][0])
            of_field = [{**one, "loc": one["loc"][1:]} for one in problems if one["loc"][0] == name]
            raise refusal(name, of_field, cls.model_fields[name].annotation, given[name]) from error

    def given(self) -> dict[str, Any]:
        """Return the fields that are not left at their defaults, as they are."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class DeviceSettings(Settings):
    """Where numbers are computed."""

    heading = RUNNING

    device: str = Field(
        default="auto", description="Device to compute on: auto, cpu, gpu, or a name of PyTorch such as cuda:1."
    )


def for_python(default: Any, description: str) -> Any:
    """Return a field that a file of settings or a flag cannot say, or that no command needs."""
    return Field(default, description=description, json_schema_extra={"flag": False})
