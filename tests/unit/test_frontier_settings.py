"""[frontier], [routing] and [economics]: what is refused, by which key, and that no key of a provider is repeated."""

from pathlib import Path

import pytest

from appliance.settings import ConfigError, load

GOOD = {"name": "a", "kind": "openai", "base_url": "https://api.example/v1", "model": "m"}


def table(**fields: str) -> str:
    lines = "\n".join(f'{name} = "{value}"' for name, value in {**GOOD, **fields}.items())
    return f"[[frontier.providers]]\n{lines}\n"


def refused(folder: Path, text: str) -> ConfigError:
    file = folder / "appliance.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {"HOME": str(folder)})
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "api.example/v1",
        "ftp://api.example/v1",
        "https://",
        "https://api.example:99999/v1",
        "https://api exa mple/v1",
        "https://api.example/v1?key=sk-planted",
        "https://api.example/v1?access_token=sk-planted",
        "https://me:sk-planted@api.example/v1",
        "https://ap\\ni.example/v1",
        "https://b\u00fccher.example/v1",
    ],
)
def test_an_address_that_cannot_be_one_is_named_and_not_repeated(tmp_path: Path, url: str) -> None:
    error = refused(tmp_path, table(base_url=url))
    assert error.key == "frontier.providers[0].base_url"
    assert "sk-planted" not in str(error)


def test_a_proxys_password_is_not_repeated(tmp_path: Path) -> None:
    error = refused(tmp_path, '[frontier]\nproxy = "http://me:sk-planted@proxy.example:99999"')
    assert error.key == "frontier.proxy"
    assert "sk-planted" not in str(error)


@pytest.mark.parametrize("url", ["https://api.example/v1", "http://127.0.0.1:8080/v1", "http://[::1]:80/v1",
                                 "https://x.openai.azure.com/openai/deployments/m?api-version=2024-10-21"])  # fmt: skip
def test_usual_addresses_are_taken(tmp_path: Path, url: str) -> None:
    file = tmp_path / "appliance.toml"
    file.write_text(table(base_url=url))
    (provider,) = load(file, {"HOME": str(tmp_path)}).settings.frontier.providers
    assert provider.provider().base_url == url


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        (table(kind="bedrock"), "frontier.providers[0].kind", "openai"),
        (table(also="telepathy"), "frontier.providers[0].also", ""),
        (table() + table(), "frontier", "'a'"),
        ('[frontier]\nproviders = "x"', "frontier.providers", "[[frontier.providers]]"),
        ('[frontier]\nproxy = "any junk"', "frontier.proxy", "blank"),
        ('[routing]\nplan = "remote"', "routing.plan", "local-then-escalate"),
        ('[routing]\nredact = ["names"]', "routing", "'names'"),
        ("[economics]\nday_budget_usd = -1", "economics.day_budget_usd", "greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, key: str, words: str) -> None:
    error = refused(tmp_path, text)
    assert error.key == key
    assert words in error.message
