"""On every backend, at any temperature, an answer has the form it must have, or is cut short and says so."""

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace

import jsonschema_rs
import pytest

from appliance.protocol import Constraint, Delta, Failed, Finished, Sampling, Stopping
from runtimes.constraints import ConstraintCompiler, InvalidConstraintError
from runtimes.contracts import Backend
from runtimes.engine import Engine, Job
from tests.contract.random_schemas import UNSUPPORTED, Schemas

SCHEMAS = int(os.environ.get("APPLIANCE_TEST_SCHEMAS", "60"))
AT_ONCE = 8
MAX_TOKENS = 120
REFUSAL = "keyword|not supported|Unknown format|parse error|nsatisfiable|oneOf"


@pytest.fixture(scope="module")
def compiler(loaded: Backend) -> Iterator[ConstraintCompiler]:
    compiler = ConstraintCompiler(loaded)
    yield compiler
    compiler.close()


def answers(backend: Backend, jobs: list[Job]) -> dict[str, tuple[str, str]]:
    """(text, finish reason) by job."""
    engine = Engine(backend, slots=AT_ONCE, step_target_s=0.2, clock=time.monotonic)
    texts, reasons = dict.fromkeys((job.id for job in jobs), ""), {}
    waiting = list(jobs)
    while waiting or not engine.idle:
        while waiting and engine.stats().running + engine.stats().waiting < AT_ONCE:
            engine.submit(waiting.pop())
        for name, event in engine.step():
            match event:
                case Delta():
                    texts[name] += event.text
                case Finished():
                    reasons[name] = event.reason
                case Failed():
                    raise AssertionError(f"{name} failed: {event.message}")
    return {name: (texts[name], reasons[name]) for name in texts}


def test_random_schemas_are_kept_or_refused_by_the_keyword(backend: Backend, compiler: ConstraintCompiler) -> None:
    prompt = tuple(backend.tokenize("The JSON:\n", add_special=True, parse_special=False))
    schemas, jobs, refusals = {}, [], []
    for number in range(SCHEMAS):
        schema = Schemas(number).schema()
        try:
            matcher = compiler.compile(Constraint("json_schema", json.dumps(schema), "response_format"))
        except InvalidConstraintError as error:
            refusals.append(str(error))
            continue
        schemas[str(number)] = schema
        sampling, stopping = Sampling(temperature=1.0, seed=number), Stopping(max_tokens=MAX_TOKENS)
        jobs.append(Job(str(number), prompt, sampling, stopping, constraint=matcher))
    assert len(jobs) > SCHEMAS / 2
    assert all(re.search(REFUSAL, refusal) for refusal in refusals), refusals
    whole = 0
    for name, (text, reason) in answers(backend, jobs).items():
        if reason == "length":
            continue
        whole += 1
        validator = jsonschema_rs.Draft202012Validator(schemas[name], validate_formats=True)
        validator.validate(json.loads(text))
    assert whole > len(jobs) / 3


@pytest.mark.parametrize("schema", UNSUPPORTED, ids=str)
def test_what_cannot_be_kept_is_refused_with_its_place(compiler: ConstraintCompiler, schema: dict[str, object]) -> None:
    nested = {"type": "object", "properties": {"x": {"type": "array", "items": schema}}}
    with pytest.raises(InvalidConstraintError, match=r"\(at #/properties/x/items\)$"):
        compiler.compile(Constraint("json_schema", json.dumps(nested), "response_format"))


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("regex", "[0-9]{3}-[a-f]+", "[0-9]{3}-[a-f]+"),
        ("regex", "(日本|🙂){2}", "(日本|🙂){2}"),
        ("lark", 'start: "yes" | "no"', "yes|no"),
        ("lark", 'start: "a" NUMBER\nNUMBER: /[0-9]{2}/', "a[0-9]{2}"),
    ],
)
def test_patterns_and_grammars_are_kept(
    backend: Backend, compiler: ConstraintCompiler, kind: str, text: str, pattern: str
) -> None:
    matcher = compiler.compile(Constraint(kind, text, "field"))  # type: ignore[arg-type] # a literal
    prompt = tuple(backend.tokenize("Say: ", add_special=True, parse_special=False))
    asked = Job("a", prompt, Sampling(temperature=1.0), Stopping(max_tokens=60), constraint=matcher)
    said = answers(backend, [replace(asked, id=str(i)) for i in range(6)])
    assert all(re.fullmatch(pattern, text) or reason == "length" for text, reason in said.values())


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("regex", "(", "f"),
        Constraint("lark", "start: nowhere", "f"),
        Constraint("lark", "", "f"),
        Constraint("json_schema", '{"$ref":"#"}', "f"),
        Constraint("json_schema", '{"$ref":"#/nowhere"}', "f"),
        Constraint("json_schema", '{"$ref":"http://127.0.0.1:1/schema"}', "f"),
        Constraint("json_schema", '{"enum":[]}', "f"),
        Constraint("json_schema", '{"type":"strin"}', "f"),
        Constraint("json_schema", '{"type":3}', "f"),
        Constraint("json_schema", '{"properties":3}', "f"),
        Constraint("json_schema", '{"allOf":[{"type":"integer"},{"type":"string"}]}', "f"),
    ],
    ids=lambda c: c.text,
)
def test_what_is_no_form_at_all_is_refused(compiler: ConstraintCompiler, constraint: Constraint) -> None:
    with pytest.raises(InvalidConstraintError) as refused:
        compiler.compile(constraint)
    assert "\n" not in str(refused.value)


def test_a_form_is_compiled_once(compiler: ConstraintCompiler) -> None:
    constraint = Constraint("regex", "[a-z]{5}", "f")
    assert compiler.compile(constraint) is compiler.compile(replace(constraint, field="g"))


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "string", "pattern": f"a{i}"} for i in range(200)]},
        {"anyOf": [{"type": "object", "properties": {"a": {"const": i}}} for i in range(3000)]},
    ],
    ids=["minutes to compile", "seconds a token"],
)
def test_what_takes_too_long_is_refused_and_others_go_on(compiler: ConstraintCompiler, schema: object) -> None:
    with pytest.raises(InvalidConstraintError, match=r"too much time|too complex"):
        compiler.compile(Constraint("json_schema", json.dumps(schema), "f"))
    assert compiler.compile(Constraint("regex", "[a-z]{7}", "f"))


def test_a_checker_that_was_killed_is_replaced(compiler: ConstraintCompiler) -> None:
    compiler.compile(Constraint("regex", "[a-z]{8}", "f"))
    assert compiler._checker is not None
    compiler._checker.kill()
    assert compiler.compile(Constraint("regex", "[a-z]{9}", "f"))
    assert compiler.compile(Constraint("regex", "[a-z]{10}", "f"))
