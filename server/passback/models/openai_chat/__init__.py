"""Any service that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp, DeepSeek, LiteLLM and others."""

from passback.models.http.bounds import Bounds
from passback.models.openai_chat.client import OpenAIChat, create

__all__ = ["Bounds", "OpenAIChat", "create"]
