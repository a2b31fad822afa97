"""A program with the providers' own SDKs; runs in an environment that has both, and prints the answers.

Each line of output is a kind of request, and the answer's text.
"""

import json
import os

from anthropic import Anthropic
from openai import OpenAI

QUESTION = os.environ["QUESTION"]
SYSTEM = os.environ["SYSTEM"]
PLACES = json.loads(os.environ["PLACES"])
"""Base URLs of one trial each, by kind of request."""


def anthropic(url: str) -> Anthropic:
    return Anthropic(base_url=url.removesuffix("/v1"), api_key="k", max_retries=0)


def ask(way: str, url: str) -> str:
    told = [{"role": "user", "content": QUESTION}]
    chat = [{"role": "system", "content": SYSTEM}, *told]
    client = OpenAI(base_url=url, api_key="k", max_retries=0)
    match way:
        case "chat":
            return client.chat.completions.create(model="m", messages=chat).choices[0].message.content
        case "chat streamed":
            stream = client.chat.completions.create(model="m", messages=chat, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        case "responses":
            return client.responses.create(model="m", instructions=SYSTEM, input=told).output_text
        case "responses streamed":
            stream = client.responses.create(model="m", instructions=SYSTEM, input=told, stream=True)
            return "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        case "messages":
            said = anthropic(url).messages.create(model="m", max_tokens=9, system=SYSTEM, messages=told)
            return said.content[0].text
        case _:
            asked = anthropic(url).messages
            with asked.stream(model="m", max_tokens=9, system=SYSTEM, messages=told) as stream:
                return "".join(stream.text_stream)


for name, place in PLACES.items():
    print(json.dumps([name, ask(name, place)]))
