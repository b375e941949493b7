"""The configuration is what the file and the environment say, and what is wrong with it is said in one line."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from appliance import settings
from appliance.settings import ConfigError, EngineSettings, Loaded, Settings, load, state_dir


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "appliance.toml"


def loaded(home: Path, file: Path | None = None, text: str = "", **environ: str) -> Loaded:
    if file is not None:
        file.write_text(text, encoding="utf-8")
    return load(file, {"HOME": str(home), **environ}, system_config=home / "etc/appliance.toml")


def refused(home: Path, file: Path | None = None, text: str = "", **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(home, file, text, **environ)
    assert "\n" not in str(caught.value)
    return caught.value


def test_without_file_and_environment_everything_has_its_default(home: Path) -> None:
    found = loaded(home)
    assert found.settings == Settings()
    assert found.path is None
    assert found.origins == {}
    assert found.settings.server.host == "127.0.0.1"
    assert found.settings.server.port == 8484


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(home: Path, file: Path) -> None:
    text = "[server]\nport = 1000\nidle_timeout_s = 5\n[engine]\nslots = 2\n"
    found = loaded(home, file, text, APPLIANCE_SERVER__PORT="2000")
    assert found.settings.server.port == 2000
    assert found.settings.server.idle_timeout_s == 5.0
    assert found.settings.engine.slots == 2
    assert found.settings.engine.max_waiting == EngineSettings().max_waiting
    assert found.path == file
    assert found.origins == {
        "server.port": "$APPLIANCE_SERVER__PORT",
        "server.idle_timeout_s": str(file),
        "engine.slots": str(file),
    }


def test_the_first_file_that_is_named_or_exists_is_read_and_no_other(home: Path, tmp_path: Path) -> None:
    def written(path: Path, port: int) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[server]\nport = {port}\n", encoding="utf-8")
        return path

    def port(config: Path | None = None, **environ: str) -> int:
        return load(config, {"HOME": str(home), **environ}, system_config=system).settings.server.port

    system = written(tmp_path / "etc/appliance.toml", 1)
    assert port() == 1
    written(home / ".config/appliance/appliance.toml", 2)
    assert port() == 2
    assert port(APPLIANCE_CONFIG=str(written(tmp_path / "three.toml", 3))) == 3
    assert port(written(tmp_path / "four.toml", 4), APPLIANCE_CONFIG=str(tmp_path / "three.toml")) == 4


@pytest.mark.parametrize(
    ("variable", "text", "name", "expected"),
    [
        ("APPLIANCE_SERVER__OFFLINE", "yes", "server.offline", True),
        ("APPLIANCE_SERVER__OFFLINE", "0", "server.offline", False),
        ("APPLIANCE_ENGINE__STEP_TARGET_MS", "50", "engine.step_target_ms", 50.0),
        ("APPLIANCE_ENGINE__THREADS", "3", "engine.threads", 3),
        ("APPLIANCE_ENGINE__THREADS", "null", "engine.threads", None),
        ("APPLIANCE_MODELS__SERVE", "a, b ,", "models.serve", ("a", "b")),
        ("APPLIANCE_MODELS__SERVE", '["a,b"]', "models.serve", ("a,b",)),
        ("APPLIANCE_SECURITY__ALLOWED_HOSTS", "box.lan, ::1", "security.allowed_hosts", ("box.lan", "::1")),
        ("APPLIANCE_SECURITY__ALLOWED_ORIGINS", "[]", "security.allowed_origins", ()),
        ("APPLIANCE_TELEMETRY__LOG_LEVEL", "debug", "telemetry.log_level", "debug"),
    ],
)
def test_variables_are_read_as_what_the_setting_holds(
    home: Path, variable: str, text: str, name: str, expected: Any
) -> None:
    assert settings.get(loaded(home, None, "", **{variable: text}).settings, name) == expected


def test_an_empty_variable_sets_nothing(home: Path, file: Path) -> None:
    found = loaded(home, file, "[server]\nport = 9\n", APPLIANCE_SERVER__PORT="", APPLIANCE_CONFIG="")
    assert found.settings.server.port == 9


def test_variables_that_are_no_settings_are_let_be(home: Path) -> None:
    found = loaded(home, APPLIANCE_API_KEY="sk-appl-x", APPLIANCE_CUDA="1", APPLIANCE_SERVERS_NEARBY="3")
    assert found.settings == Settings()


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[server]\nprot = 1", "server.prot", "did you mean server.port?"),
        ("[engine]\ncontext_token = 1", "engine.context_token", "did you mean engine.context_tokens?"),
        ("[server]\nslots = 1", "server.slots", "did you mean engine.slots?"),
        ("[sever]\nport = 1", "sever", "did you mean [server]?"),
        ("port = 1", "port", "did you mean server.port?"),
        ("server = 1", "server", "write [server]"),
        ("[models]\nzzz = 1", "models.zzz", "keys of [models] are serve"),
        (
            "[zzz]\nport = 1",
            "zzz",
            "sections are server, models, engine, cache, routing, frontier, admission, slo, economics",
        ),
    ],
)
def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_known_one(
    home: Path, file: Path, text: str, key: str, hint: str
) -> None:
    error = refused(home, file, text)
    assert error.key == key
    assert hint in error.message
    assert str(file) in error.message


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("APPLIANCE_SERVER__PROT", "did you mean APPLIANCE_SERVER__PORT?"),
        ("APPLIANCE_SEVER__PORT", "did you mean APPLIANCE_SERVER__PORT?"),
        ("APPLIANCE_SERVER_PORT", "write APPLIANCE_SERVER__PORT"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(home: Path, variable: str, hint: str) -> None:
    error = refused(home, None, "", **{variable: "1"})
    assert hint in error.message
    assert f"${variable}" in error.message


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("[server]\nport = '8484'", "server.port", "should be a valid integer; got '8484'"),
        ("[server]\nport = 65536", "server.port", "should be less than or equal to 65535; got 65536"),
        ("[engine]\nslots = true", "engine.slots", "should be a valid integer; got True"),
        ("[engine]\nslots = 0", "engine.slots", "should be greater than or equal to 1"),
        ("[server]\nidle_timeout_s = inf", "server.idle_timeout_s", "should be a finite number"),
        ("[server]\noffline = 'no'", "server.offline", "should be a valid boolean"),
        ("[models]\nserve = 'one'", "models.serve", "should be a list of names; got 'one'"),
        ("[models]\nserve = []", "models.serve", "at least 1"),
        ("[models]\nserve = [1]", "models.serve", "should be a valid string; got 1"),
        ("[models]\nserve = ['a', 'a']", "models", "'a' is listed twice"),
        ("[telemetry]\nlog_level = 'loud'", "telemetry.log_level", "should be 'debug', 'info'"),
        ("[security]\nallowed_hosts = ['http://x']", "security.allowed_hosts", "without scheme, port and path"),
        ("[security]\nallowed_hosts = ['x:80']", "security.allowed_hosts", "without scheme, port and path"),
        ("[security]\nallowed_origins = ['x.lan']", "security.allowed_origins", "write scheme and host"),
    ],
)
def test_a_wrong_value_in_the_file_names_key_value_and_file(
    home: Path, file: Path, text: str, key: str, message: str
) -> None:
    error = refused(home, file, text)
    assert error.key == key
    assert message in error.message
    assert error.message.endswith(f"({file})")


def test_a_wrong_value_in_the_environment_names_its_variable(home: Path) -> None:
    error = refused(home, APPLIANCE_ENGINE__SLOTS="many")
    assert error.key == "engine.slots"
    assert error.message == "should be a valid integer; got 'many' ($APPLIANCE_ENGINE__SLOTS)"


def test_all_wrong_keys_are_named(home: Path, file: Path) -> None:
    error = refused(home, file, "[engine]\nslots = 0\nthreads = 0\n[server]\nport = -1\n")
    assert error.key == "server.port"
    assert "Also wrong: engine.slots, engine.threads" in error.message


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[engine]\ncontext_tokens = 4096\nkv_tokens = 2048", ("kv_tokens (2048)", "context_tokens (4096)")),
        ("[engine]\nhang_timeout_s = 0.3\nstep_target_ms = 200", ("hang_timeout_s (0.3 s)", "step_target_ms (200 ms)")),
        ("[server]\nmax_held_body_bytes = 2000\nmax_body_bytes = 2001", ("_body_bytes (2000)", "_body_bytes (2001)")),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    home: Path, file: Path, text: str, names: tuple[str, ...]
) -> None:
    error = refused(home, file, text)
    assert all(name in error.message for name in names)
    assert str(file) in error.message


def test_a_contradiction_between_file_and_environment_names_both(home: Path, file: Path) -> None:
    error = refused(home, file, "[engine]\ncontext_tokens = 4096\n", APPLIANCE_ENGINE__KV_TOKENS="512")
    assert f"($APPLIANCE_ENGINE__KV_TOKENS, {file})" in error.message


def test_the_value_of_an_unknown_key_is_not_repeated(home: Path, file: Path) -> None:
    assert "hunter2" not in str(refused(home, file, "[server]\npassword = 'hunter2'"))
    assert "hunter2" not in str(refused(home, APPLIANCE_SERVER__PASSWORD="hunter2"))


@pytest.mark.parametrize(
    ("content", "message"), [(b"port ==", "is not valid TOML"), (b"\xff\xfe", "is not UTF-8 text")]
)
def test_a_file_that_is_no_toml_is_named(home: Path, file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(file, {"HOME": str(home)})
    assert str(file) in caught.value.message


def test_a_named_file_that_does_not_exist_is_an_error_that_says_who_named_it(home: Path, file: Path) -> None:
    with pytest.raises(ConfigError, match=r"named by --config"):
        load(file, {"HOME": str(home)})
    with pytest.raises(ConfigError, match=r"named by \$APPLIANCE_CONFIG"):
        load(None, {"HOME": str(home), "APPLIANCE_CONFIG": str(file)})


def test_options_of_the_command_line_win_over_all_and_are_checked_too(home: Path, file: Path) -> None:
    found = loaded(home, file, "[server]\nport = 1000\n[engine]\nslots = 2\n", APPLIANCE_SERVER__PORT="2000")
    optioned = found.with_options({"server.port": 3000, "models.serve": ["other"]})
    assert optioned.settings.server.port == 3000
    assert optioned.settings.models.serve == ("other",)
    assert optioned.settings.engine == found.settings.engine
    assert optioned.origins["server.port"] == "the command line"
    assert optioned.origins["engine.slots"] == str(file)
    with pytest.raises(ConfigError, match=r"^server\.port: .*got 70000 \(the command line\)$"):
        found.with_options({"server.port": 70000})


def test_settings_cannot_be_changed_after_they_were_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().server.port = 1  # type: ignore[misc] # that it cannot be done is the point


def test_building_settings_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPLIANCE_SERVER__PORT", "1")
    monkeypatch.setenv("SERVER", "{}")
    assert Settings().server.port == 8484


def test_every_setting_is_described_and_its_default_is_valid() -> None:
    for key in settings.all_keys():
        assert key.description, key.name
        assert settings.get(Settings(), key.name) == key.default
    rebuilt = Settings.model_validate(Settings().model_dump(mode="json"), strict=False)
    assert rebuilt == Settings()


def test_state_is_kept_where_option_service_manager_or_home_say(tmp_path: Path) -> None:
    environ = {"HOME": "/home/ada", "STATE_DIRECTORY": "/var/lib/appliance:/var/lib/other"}
    assert state_dir(tmp_path, environ) == tmp_path
    assert state_dir(Path("here"), environ) == Path.cwd() / "here"
    assert state_dir(None, environ) == Path("/var/lib/appliance")
    assert state_dir(None, {"HOME": "/home/ada"}) == Path("/home/ada/.local/share/appliance")
