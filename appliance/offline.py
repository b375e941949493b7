"""Whether the appliance is offline, across restarts: a file in the state folder, and the configuration over it."""

import os
from contextlib import suppress
from pathlib import Path

from appliance.errors import Forbidden

FILE_NAME = "offline"
_TEXT = "The appliance lets nothing out of this machine while this file is here: `appliance offline off` removes it.\n"


class OfflineSwitch:
    def __init__(self, state_dir: Path, *, pinned: bool) -> None:
        """`pinned`: by the configuration or an option, which nothing else can lift."""
        self._path = state_dir / FILE_NAME
        self.pinned = pinned

    @property
    def is_on(self) -> bool:
        return self.pinned or os.path.lexists(self._path)  # a link to nothing was put there too

    def set(self, *, offline: bool) -> None:
        """Raises `Forbidden` when the configuration says otherwise, and OSError."""
        if not offline:
            if self.pinned:
                raise Forbidden(
                    "The configuration says offline (server.offline): change it there, and restart.", param="offline"
                )
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.write_text(_TEXT, encoding="utf-8")
        with suppress(OSError):  # a power cut must not put the machine back online
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
