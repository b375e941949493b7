"""Chat templates find what Hugging Face gives them, nothing of Python, and lose no origin of any character."""

from datetime import UTC, datetime

import pytest
from jinja2 import TemplateError

from runtimes.templates.environment import RefusedError, build_environment
from runtimes.templates.provenance import from_client, of_template, plain, runs_of, splice

NOW = datetime(2026, 3, 5, 7, 8, 9, tzinfo=UTC)
ENVIRONMENT = build_environment(lambda: NOW)


def render(source: str, **variables: object) -> str:
    template = ENVIRONMENT.from_string(source)
    return splice(template.root_render_func(template.new_context(variables)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% if true %}\n  a\n{% endif %}\nb", "  a\nb"),  # trim_blocks
        ("x\n   {% if true %}y{% endif %}", "x\ny"),  # lstrip_blocks
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i>2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
         "02"),
        ("{% generation %}a{{ 1 }}{% endgeneration %}b", "a1b"),
        ("{% set x = 1 %}{% generation %}{% set x = 2 %}{% endgeneration %}{{ x }}", "1"),
        ("{{ {'a': 'é<>', 'b': [1, none, true]} | tojson }}", '{"a": "é<>", "b": [1, null, true]}'),
        ("{{ {'b': 1, 'a': 'é'} | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}",
         '{\n "a": "\\u00e9",\n "b": 1\n}'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ strftime_now('%d %B %Y') }}", "05 March 2026"),
        ("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3"),
        ("{{ none }}{{ true }}{{ 1.5 }}{{ missing }}{{ {'a': [1]} }}", "NoneTrue1.5{'a': [1]}"),
        ("{{ missing is defined }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }}",
         "False True True True"),
        ("{{ 'a-b'.split('-')[-1] ~ 'X'.lower() ~ 3 }}", "bx3"),
        ("{% macro f(x, y='d') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(1) }}{{ f(2, y=3) }}", "<1d><23>"),
        ("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}", "[in]"),
        ("{% filter upper %}abc{% endfilter %}{% set t %}x{{ 1 }}{% endset %}{{ t }}", "ABCx1"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='role') | list | length }}", "1"),
        ("{{ messages[::-1][0].role }} {{ (messages | last)['role'] }} {{ messages[1:] | length }}", "tool tool 1"),
        ("{{ {'b': 1, 'a': 2} | dictsort | map('first') | join('+') }}", "a+b"),
        ("{% for key, value in {'x': 1}.items() %}{{ key ~ value }}{% endfor %}", "x1"),
        ("{{ '%s=%d' | format('a', 3) }} {{ '{} {x}'.format(1, x=2) }} {{ '%s' % 'z' }} {{ 7 % 4 }}", "a=3 1 2 z 3"),
        ("{{ '<b>' | e }}{{ '<b>' | safe }}{{ '<b>' | escape | upper }}", "&lt;b&gt;<b>&LT;B&GT;"),
        ("{{ 'a\nb' | indent(2) }}{{ ' x ' | trim }}{{ 'abc' | replace('b', '-') }}", "a\n  bxa-c"),
    ],
)  # fmt: skip
def test_the_language_of_chat_templates_works(source: str, expected: str) -> None:
    messages = [{"role": "user"}, {"role": "tool"}]
    assert plain(render(source, messages=messages)) == expected


def test_a_template_can_refuse_with_its_own_words() -> None:
    with pytest.raises(RefusedError, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must ' ~ 'alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ x.__class__.__base__ }}",
        "{{ x.strip.__globals__ }}",
        "{{ x.strip.__func__.__globals__ }}",
        "{{ x.split.__func__.__code__ }}",
        "{{ x._runs }}",
        "{{ x | attr('_runs') }}",
        "{{ [x] | map(attribute='__class__') | list }}",
        "{{ x['__class__'] }}",
        "{{ '{0.__class__}'.format(x) }}",
        "{{ x.format.__globals__ }}",
        "{{ '{0._runs}'.format(x) }}",
        "{{ '{a.__init__.__globals__}'.format_map({'a': raise_exception}) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ self.__init__ }}{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ joiner.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ (x for x in [1]).gi_frame }}",
        "{% include 'etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{% from 'os' import system %}{{ system }}",
        "{% extends 'base' %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages[0].pop('role') }}",
        "{% set messages[0].role = 'x' %}",
        "{% set _ = messages.clear() %}",
        "{{ import os }}",
        "{% exec 'x' %}",
        "{{ open('/etc/passwd') }}",
        "{{ __import__('os') }}",
        "{{ eval('1') }}",
        "{{ x.encode.__self__ }}",
    ],
)
def test_nothing_of_python_is_in_reach(source: str) -> None:
    messages = [{"role": "user"}]
    try:
        text = plain(render(source, x=from_client("text", 0), messages=messages))
    except (TemplateError, TypeError, AttributeError, KeyError):
        text = ""
    assert text in ("", "[Undefined]")
    assert messages == [{"role": "user"}]


def origin(source: str, **variables: object) -> str:
    """The rendering with the client's characters in brackets."""
    text = of_template(render(source, **variables))
    made, position = "", 0
    for run in runs_of(text):
        part = plain(text)[position : position + run.length]
        made += part if run.sources is None else f"[{part}]"
        position += run.length
    return made


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<{{ x }}>", "<[ab c]>"),
        ("{{ '<' ~ x ~ 1 ~ '>' }}", "<[ab c]1>"),
        ("{{ '<' + x + '>' }}", "<[ab c]>"),
        ("{{ ('<' ~ x ~ ' ') | trim }}", "<[ab c]"),
        ("{{ x.split(' ')[0] ~ '|' }}", "[ab]|"),
        ("{{ ' '.join(['<', x]) }}", "< [ab c]"),
        ("{{ ['<', x] | join(' ') }}", "< [ab c]"),
        ("{{ ['<', 'y'] | join(x) }}", "<[ab c]y"),
        ("{{ [{'k': x}, {'k': '<'}] | join('', attribute='k') }}", "[ab c]<"),
        ("{{ 'a-b'.replace('-', x) }}", "a[ab c]b"),
        ("{{ 'a-b' | replace('-', x) }}", "a[ab c]b"),
        ("{{ x | replace('b', '<') }}", "[a]<[ c]"),
        ("{{ '<%s>' % x }}", "<[ab c]>"),
        ("{{ '<%s %s>' % (x, 'y') }}", "<[ab c] y>"),
        ("{{ '<%s>' | format(x) }}", "<[ab c]>"),
        ("{{ '<%(k)s>' | format(k=x) }}", "<[ab c]>"),
        ("{{ '<{}>'.format(x) }}", "<[ab c]>"),
        ("{{ '<{k}>'.format_map({'k': x}) }}", "[<ab c>]"),
        ("{{ '<{:>6}>'.format(x) }}", "[<  ab c>]"),
        ("{{ '<{0[0]}>'.format(x) }}", "[<a>]"),
        ("{{ x.format() }}", "[ab c]"),
        ("{{ x | upper }}{{ 'y' | upper }}", "[AB C]Y"),
        ("{{ x | tojson }}", '["ab c"]'),
        ("{{ {'k': [x]} | tojson }}", '[{"k": ["ab c"]}]'),
        ("{{ {'k': 'y'} | tojson }}", '{"k": "y"}'),
        ("{{ {'k': x} }}", "[{'k': 'ab c'}]"),
        ("{{ {'k': x} | string }}", "[{'k': 'ab c'}]"),
        ("{{ [x] ~ '' }}", "[['ab c']]"),
        ("{{ x | list | last }}{{ x | first }}-{{ x[1] }}-{{ x[-1:] }}", "[c][a]-[b]-[c]"),
        ("{% for c in x %}{{ c }}.{% endfor %}", "[a].[b].[ ].[c]."),
        ("{{ x | default('-') }}{{ missing | default('-') }}{{ none | default(x, true) }}", "[ab c]-[ab c]"),
        ("{{ [x, '<'] | last }}{{ [x, '<'] | sort | join }}", "<<[ab c]"),
        ("{{ [x] | map('upper') | join }}{{ [x] | map('trim') | list | join }}", "[AB C][ab c]"),
        ("{% macro f(v) %}<{{ v }}>{% endmacro %}{{ f(x) }}{{ f(x) ~ 1 }}", "<[ab c]><[ab c]>1"),
        ("{% macro f(v) %}<|end|>{% endmacro %}{{ f(x) }}", "<|end|>"),
        ("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ x }}{% endcall %}", "<[ab c]>"),
        ("{% set t %}<{{ x }}>{% endset %}{{ t }}", "<[ab c]>"),
        ("{% filter trim %} <{{ x }}> {% endfilter %}", "<[ab c]>"),
        ("{% filter upper %}<{{ x }}>{% endfilter %}", "[<AB C>]"),
        ("{% set ns = namespace(t='<') %}{% for i in [1] %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}", "<[ab c]"),
        ("{{ x if true else 'n' }}{{ 'n' if x else 'm' }}", "[ab c]n"),
        ("{{ x | e }}{{ x | safe }}{{ x | escape ~ '<' }}", "[ab c][ab c][ab c]<"),
        ("{{ 'q' | indent ~ (x | indent(2, true)) }}", "q  [ab c]"),
        ("{% autoescape true %}{{ x }}{% endautoescape %}", "[ab c]"),
        ("{{ x.encode().decode() }}", "[ab c]"),
        ("{{ x | urlencode }}-{{ x | title }}-{{ x | wordwrap(2) }}", "[ab%20c]-[Ab C]-[ab\nc]"),
        ("{{ strftime_now(x) }}", "[ab c]"),
        ("{{ x | length }}{{ x == 'ab c' }}{{ 'ab' in x }}", "4TrueTrue"),
        ("{{ {'ab c': '<'}[x] }}", "<"),
        ("{{ x * 2 }}-{{ 2 * x }}", "[ab cab c]-[ab cab c]"),
        ("{{ x.splitlines()[0] }}{{ x.partition(' ')[2] }}{{ x.removeprefix('ab') }}", "[ab c][c][ c]"),
    ],
)  # fmt: skip
def test_the_origin_of_characters_survives(source: str, expected: str) -> None:
    assert origin(source, x=from_client("ab c", 0)) == expected
