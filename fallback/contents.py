"""What stands in a request: its texts and its images. Pure."""

from collections.abc import Iterator

from appliance.protocol import ChatPrompt, ImagePart, Message, Request, TextPart


def messages_of(request: Request) -> Iterator[Message]:
    """Of a text completion: none."""
    for prompt in request.prompts:
        if isinstance(prompt, ChatPrompt):
            yield from prompt.messages


def said(request: Request) -> Iterator[str]:
    """The texts of its messages."""
    for message in messages_of(request):
        yield from (part.text for part in message.content if isinstance(part, TextPart))


def everything_said(request: Request) -> Iterator[str]:
    """Those, and the calls and tools that are written out to a model."""
    yield from said(request)
    for message in messages_of(request):
        yield from (text for call in message.tool_calls for text in (call.name, call.arguments))
    for prompt in request.prompts:
        for tool in prompt.tools if isinstance(prompt, ChatPrompt) else ():
            yield from (tool.name, tool.description, tool.parameters)


def images(request: Request) -> Iterator[ImagePart]:
    for message in messages_of(request):
        yield from (part for part in message.content if isinstance(part, ImagePart))
