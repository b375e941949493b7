"""A trace of agents at work, made from a seed: each request with its meaning, so that a wrong answer can be told.

Eight agents (`trace.toml`) work in recurring contexts: a shop's policy, a contract, a module, a runbook. Three tasks
overlap at a time. Of all requests 22 % repeat an earlier one, 15 % ask it in other words, 15 % are traps (close to an
earlier one, with another meaning), 10 % are later turns of a conversation, 6 % have tools, 4 % are about this moment,
4 % want a new draw, and 24 % are new. The 37 % that a cache could answer lie between two published counts: 31 % of
the queries to web services (MeanCache, arXiv 2403.02694), 62 to 69 % of customers' questions (GPT Semantic Cache, arXiv
2411.05276). No text was chosen by what our cache makes of it.

Pure: it knows no server. One seed gives one trace.
"""

import hashlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any, Final, Literal

from tests.bench.cache.agents import FORMS, Agent, call_message, load, result_message

Category = Literal["repeat", "paraphrase", "trap", "multi-turn", "tools", "now", "sampled", "fresh"]
SHARES: Final[Mapping[Category, float]] = {
    "repeat": 0.22,
    "paraphrase": 0.15,
    "trap": 0.15,
    "multi-turn": 0.10,
    "tools": 0.06,
    "now": 0.04,
    "sampled": 0.04,
    "fresh": 0.24,
}
AT_ONCE: Final = 3  # tasks that overlap
QUESTIONS: Final = (4, 8)  # of a task, at least and at most
REPLAYED: Final = 0.4  # of an agent's conversations in a context that it knows
MAX_TOKENS: Final = 24
CALL_TOKENS: Final = 32  # a whole call takes 26
TEMPERATURE: Final = 0.8  # of what is drawn


@dataclass(frozen=True, slots=True)
class Step:
    """One request. Two with the same `context` and `meaning` may share an answer, and no others."""

    task: str
    agent: str
    category: Category
    family: str  # of questions that are close to each other; "": there are no others
    apart: str  # what sets it apart from the family's first question; "": it is that one
    context: str  # digest of all of the request but its last text
    meaning: str
    text: str  # the last
    body: Mapping[str, Any]
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Site:
    """One context of an agent, and what was asked in it."""

    words: Mapping[str, str]  # in the slots of its texts
    system: str
    asked: list[Step] = field(default_factory=list)  # whose answers may be given again
    begun: list[int] = field(default_factory=list)  # conversations
    ended: list[int] = field(default_factory=list)

    def filled(self, text: str) -> str:
        return Template(text).substitute(self.words)


@dataclass(slots=True)
class _Task:
    name: str
    agent: Agent
    site: _Site
    left: int  # steps to go
    script: Iterator[Step] | None = None  # None: each step is decided on when its turn comes
    talk: int | None = None  # the conversation that is at its end when the task is


def trace(seed: int, tasks: int) -> Iterator[Step]:
    """All requests in the order in which they are sent."""
    author = _Author(random.Random(seed))
    names, working = (f"task-{number}" for number in range(1, tasks + 1)), list[_Task]()
    while True:
        working += [author.begin(name) for name in itertools.islice(names, AT_ONCE - len(working))]
        if not working:
            return
        task = author.random.choice(working)
        task.left -= 1
        yield author.question(task) if task.script is None else next(task.script)
        if not task.left:
            working.remove(task)
            if task.talk is not None:
                task.site.ended.append(task.talk)


class _Author:
    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self._agents = load()
        self._sites: dict[str, list[_Site]] = {agent.name: [] for agent in self._agents}
        self._written = Counter[Category]()  # with what begun conversations will come to
        self._alone = itertools.count(1)

    def begin(self, name: str) -> _Task:
        """A task of the kind that the trace is short of."""
        chosen: Sequence[Agent]
        if self._lacks("multi-turn") >= 1:
            chosen = [agent for agent in self._agents if agent.talks]
        elif self._lacks("tools") >= 1:
            chosen = [agent for agent in self._agents if agent.calls]
        else:
            chosen = self.random.choices(self._agents, [agent.weight for agent in self._agents])
        agent = chosen[0]
        task = _Task(name, agent, self._site(agent), self.random.randint(*QUESTIONS))
        if not agent.families:
            steps = self._talk(task) if agent.talks else self._calls(task)
            self._written.update(step.category for step in steps)
            task.left, task.script = len(steps), iter(steps)
        return task

    def question(self, task: _Task) -> Step:
        """The next of a task, of a category that the trace is short of and that its context has what it takes for."""
        possible = _possible(task.agent, task.site.asked)
        lacking = [max(0.0, self._lacks(category)) for category in possible]
        weights = lacking if any(lacking) else [SHARES[category] for category in possible]
        (category,) = self.random.choices(list(possible), weights)
        family, apart, text = self.random.choice(possible[category])
        self._written[category] += 1
        step = self._step(task, category, [_says("user", text)], family=family, apart=apart)
        if family:
            task.site.asked.append(step)
        return step

    def _site(self, agent: Agent) -> _Site:
        known = self._sites[agent.name]
        useful = [site for site in known if site.ended or len(site.begun) < len(agent.talks) or not agent.talks]
        if useful and self.random.random() < agent.recurs:
            return self.random.choice(useful)
        taken = {site.system for site in known}
        while True:  # there are a hundred ways to fill a prompt, and more
            words = {slot: self.random.choice(values) for slot, values in agent.slots.items()}
            site = _Site(words, Template(agent.prompt).substitute(words))
            if site.system not in taken:
                known.append(site)
                return site

    def _talk(self, task: _Task) -> list[Step]:
        """A conversation, each step with all that was said before; or an earlier one once more."""
        agent, site = task.agent, task.site
        new = [number for number in range(len(agent.talks)) if number not in site.begun]
        again = bool(site.ended) and (not new or self.random.random() < REPLAYED)
        number = self.random.choice(site.ended if again else new)
        if not again:
            site.begun.append(number)
            task.talk = number
        steps, said = list[Step](), list[dict[str, Any]]()
        for user, assistant in agent.talks[number]:
            said.append(_says("user", site.filled(user)))
            category: Category = "repeat" if again else "multi-turn" if steps else "fresh"
            steps.append(self._step(task, category, said, family=f"{agent.name}-{number}-{len(steps)}"))
            said.append(_says("assistant", site.filled(assistant)))
        return steps

    def _calls(self, task: _Task) -> list[Step]:
        """A call, what is said of its result, and a question after that."""
        agent, site = task.agent, task.site
        told = self.random.choice(agent.calls)
        asked = [_says("user", site.filled(told.ask))]
        came = [call_message(told.call, site.words["sku"]), result_message(site.filled(told.result))]
        then = [_says("assistant", site.filled(told.said)), _says("user", told.then)]
        tools = {"tools": agent.tools, "parallel_tool_calls": False, "max_tokens": CALL_TOKENS}
        free = {**FORMS[agent.form], **tools}
        return [
            self._step(task, "tools", asked, form={**tools, "tool_choice": "required"}),
            self._step(task, "tools", [*asked, *came], form=free),
            self._step(task, "tools", [*asked, *came, *then], form=free),
        ]

    def _step(
        self,
        task: _Task,
        category: Category,
        said: Sequence[Mapping[str, Any]],
        *,
        family: str = "",
        apart: str = "",
        form: Mapping[str, Any] | None = None,
    ) -> Step:
        agent = task.agent
        body = {
            "model": "auto",
            "messages": [_says("system", task.site.system), *said],
            "max_tokens": MAX_TOKENS,
            "temperature": TEMPERATURE if category == "sampled" else 0,
            **(FORMS[agent.form] if form is None else form),
        }
        headers = {"x-appliance-task": task.name} | ({"x-appliance-step": agent.step} if agent.step else {})
        meaning = f"{family}/{apart}" if family else f"alone-{next(self._alone)}"
        text = said[-1]["content"]
        return Step(task.name, agent.name, category, family, apart, _context(body, agent), meaning, text, body, headers)

    def _lacks(self, category: Category) -> float:
        """How many requests of it the trace is short of."""
        return SHARES[category] * (self._written.total() + 1) - self._written[category]


def _possible(agent: Agent, asked: Sequence[Step]) -> dict[Category, list[tuple[str, str, str]]]:
    """What may be asked where this was asked: by category, its family, what sets it apart from that, and its text."""
    texts = {step.text for step in asked}
    known = {(step.family, step.apart) for step in asked}
    begun = {step.family for step in asked}
    phrasings = [(family.name, "", text) for family in agent.families for text in family.same]
    others = [(family.name, apart, text) for family in agent.families for apart, text in family.other.items()]
    found: dict[Category, list[tuple[str, str, str]]] = {
        "repeat": [(step.family, step.apart, step.text) for step in asked],
        "paraphrase": [asks for asks in phrasings if asks[:2] in known and asks[2] not in texts],
        "trap": [asks for asks in others if asks[0] in begun and asks[:2] not in known],
        "now": [("", "", text) for text in agent.now],
        "sampled": [("", "", text) for text in agent.sampled],
        "fresh": [asks for asks in phrasings if asks[0] not in begun],
    }
    return {category: choices for category, choices in found.items() if choices}


def _says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _context(body: Mapping[str, Any], agent: Agent) -> str:
    document = {**body, "messages": body["messages"][:-1], "step": agent.step}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]
