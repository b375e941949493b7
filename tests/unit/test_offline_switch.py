"""Once offline the appliance stays offline, over restarts too, until someone who may says otherwise."""

from pathlib import Path

import pytest

from appliance.errors import Forbidden
from appliance.offline import FILE_NAME, OfflineSwitch


def switch(state_dir: Path, *, pinned: bool = False) -> OfflineSwitch:
    return OfflineSwitch(state_dir, pinned=pinned)


def test_at_first_it_is_off_and_leaves_no_trace(tmp_path: Path) -> None:
    assert not switch(tmp_path / "state").is_on
    assert not (tmp_path / "state").exists()


def test_it_stays_on_over_a_restart(tmp_path: Path) -> None:
    switch(tmp_path).set(offline=True)
    assert switch(tmp_path).is_on
    switch(tmp_path).set(offline=False)
    assert not switch(tmp_path).is_on


def test_turning_it_twice_is_turning_it_once(tmp_path: Path) -> None:
    one = switch(tmp_path)
    for _ in range(2):
        one.set(offline=True)
        assert one.is_on
    for _ in range(2):
        one.set(offline=False)
        assert not one.is_on


def test_a_state_folder_that_is_not_there_is_made_and_is_the_owner_s_alone(tmp_path: Path) -> None:
    switch(tmp_path / "a" / "b").set(offline=True)
    assert switch(tmp_path / "a" / "b").is_on
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0
    switch(tmp_path / "nowhere").set(offline=False)
    assert not (tmp_path / "nowhere").exists()


def test_a_file_of_any_content_means_offline_and_tells_a_reader_how_to_end_it(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    assert switch(tmp_path).is_on
    switch(tmp_path).set(offline=True)
    assert "appliance offline off" in (tmp_path / FILE_NAME).read_text(encoding="utf-8")


def test_someone_else_s_change_of_the_file_counts_at_once(tmp_path: Path) -> None:
    one, other = switch(tmp_path), switch(tmp_path)
    one.set(offline=True)
    assert other.is_on
    (tmp_path / FILE_NAME).unlink()
    assert not one.is_on


def test_what_the_configuration_says_nothing_else_lifts(tmp_path: Path) -> None:
    pinned = switch(tmp_path, pinned=True)
    assert pinned.is_on
    with pytest.raises(Forbidden) as caught:
        pinned.set(offline=False)
    assert caught.value.param == "offline"
    assert "server.offline" in caught.value.message
    assert pinned.is_on


def test_offline_by_hand_outlives_the_configuration_s_word(tmp_path: Path) -> None:
    pinned = switch(tmp_path, pinned=True)
    pinned.set(offline=True)
    with pytest.raises(Forbidden):
        pinned.set(offline=False)
    assert switch(tmp_path).is_on


def test_a_folder_that_cannot_be_written_is_an_error_and_no_false_promise(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broken = switch(tmp_path / "file" / "state")
    with pytest.raises(OSError, match="file"):
        broken.set(offline=True)
    assert not broken.is_on
