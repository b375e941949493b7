"""Renders prompts through a process of its own, so that a template that loops or eats memory stops nothing else.

A template is code that came with a model file. It runs in a child (`renderer`) under a time and a memory cap; a child
that breaks a cap is killed and replaced, and only the render that broke it fails. This module knows processes and
time, no templates.
"""

import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from appliance.protocol import ChatPrompt
from runtimes.templates.frames import Load, answer_from_wire, load_to_wire, pack, render_to_wire
from runtimes.templates.neutral import NeutralTemplate, neutral_template
from runtimes.templates.process import RendererProcess
from runtimes.templates.result import Rendered, RendererDied, Segment, TemplateError, TemplateTimeout

TIME_LIMIT_S = 2.0  # an ordinary prompt takes well under 0.01 s
OUTPUT_LIMIT_BYTES = 16 * 2**20  # four times what a context of a million tokens takes
QUEUE_LIMIT_S = 30.0  # for the renders ahead of one; each takes TIME_LIMIT_S at the most
FRAME_LIMIT_FACTOR = 4  # segments of a prompt that is all control tokens, to the bytes of its text

__all__ = ["Rendered", "RendererDied", "Segment", "TemplateError", "TemplateRenderer", "TemplateTimeout"]
