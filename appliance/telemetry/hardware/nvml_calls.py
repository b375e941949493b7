"""Calls of NVML whose errors are plain: a reading that cannot be had is None, what does not answer any more is `Gone`.

Knows error codes; what is read, and what for, is not known here.
"""

import importlib
from typing import Any, Final

_GONE: Final = (
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",  # the driver was replaced under a running process
)
_NO_DRIVER: Final = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_NO_PERMISSION")


class Gone(Exception):
    """A GPU or its driver does not answer; the message is NVML's."""

    def __init__(self, message: str, *, no_driver: bool, forbidden: bool) -> None:
        super().__init__(message)
        self.no_driver = no_driver  # none that this process can use
        self.forbidden = forbidden


class Nvml:
    def __init__(self) -> None:
        self.api: Any = importlib.import_module("pynvml")  # large and untyped; loaded by the thread that reads
        self._gone = {getattr(self.api, name) for name in _GONE}
        self._no_driver = {getattr(self.api, name) for name in _NO_DRIVER}

    def do(self, name: str, *arguments: Any) -> Any:
        """Calls it. Raises `Gone` for every error."""
        try:
            return getattr(self.api, name)(*arguments)
        except self.api.NVMLError as error:
            raise self._as_gone(error) from None

    def ask(self, name: str, *arguments: Any) -> Any:
        """Its answer; None where there is none, be it that the card, the driver or our permissions lack it.

        Raises `Gone` where nothing else will be answered either.
        """
        try:
            return getattr(self.api, name)(*arguments)
        except self.api.NVMLError as error:
            if error.value in self._gone:
                raise self._as_gone(error) from None
            return None

    def _as_gone(self, error: Any) -> Gone:
        return Gone(
            str(error),
            no_driver=error.value in self._no_driver,
            forbidden=error.value == self.api.NVML_ERROR_NO_PERMISSION,
        )
