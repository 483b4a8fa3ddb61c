"""What is measured, as values: nothing here is written as prose and parsed back, or needs torch."""

from __future__ import annotations

from dataclasses import dataclass

from driftnorm._internal.options import Options, options_text, read_options

__all__ = ["MethodId"]


@dataclass(frozen=True)
class MethodId:
    """A method as a table names it: its name, and the options in which it is another method."""

    name: str
    options: Options = ()

    def __str__(self) -> str:
        return f"{self.name}:{options_text(self.options)}" if self.options else self.name

    @classmethod
    def read(cls, text: str) -> MethodId:
        """Read ``name`` or ``name:key=value,key=value``, in whichever order the options come.

        >>> str(MethodId.read("gprebn:theta=0.5,momentum=0.1"))
        'gprebn:momentum=0.1,theta=0.5'
        """
        name, _, rest = text.partition(":")
        return cls(name.strip(), read_options(filter(None, rest.split(","))))
