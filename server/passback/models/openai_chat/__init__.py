"""Services with OpenAI's chat completions API.

Among them are OpenAI, vLLM, Ollama, llama.cpp, DeepSeek and LiteLLM.
"""

from passback.models.http.bounds import Bounds
from passback.models.openai_chat.client import OpenAIChat, create

__all__ = ["Bounds", "OpenAIChat", "create"]
