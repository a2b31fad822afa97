"""LiteLLM's proxy with its own callback: a program without spans sends session and agent along."""

from litellm_proxy_story import answer

print(answer())
