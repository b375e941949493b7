"""What every section of the configuration is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Strict


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


# A TOML array arrives as a list. All else is strict, so that `slots = true` is an error and not 1.
Names = Annotated[tuple[str, ...], Strict(strict=False)]
