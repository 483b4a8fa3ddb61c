"""Frozen dataclasses that travel to other processes as their fields alone."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast


class Description:
    """A frozen dataclass that may open things; whatever it has opened stays in its process."""

    def __getstate__(self) -> dict[str, Any]:
        names = {field.name for field in fields(cast(Any, self))}
        return {name: value for name, value in vars(self).items() if name in names}
