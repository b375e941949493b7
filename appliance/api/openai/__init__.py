"""OpenAI's wire formats, pure: bodies into `protocol.Request`, `protocol.Event`s into bodies and chunks.

Routes, clocks, engines and models belong to others. Start with `chat_request` and `serialize`.
"""
