"""Owns the table of clients that the matrix covers: what each one is, where it is installed, how it is started.

Must not start anything. Invariant: a client is one row; nothing else in this folder but its agent knows it by name, so
that a client of another language is a row and a script as well.
"""

from __future__ import annotations

from dataclasses import dataclass

CHAT, RESPONSES, MESSAGES, GEMINI = "chat completions", "responses", "messages", "generateContent"
PLAIN, STREAM = "plain", "stream"


@dataclass(frozen=True)
class Client:
    """One row.

    ``package`` is the distribution whose version is told. ``environment`` is a folder below `.venv-clients` that holds
    ``requirements``; empty: this project's own `.venv`. ``agent`` is a script below `agents`, ``arguments`` are its
    own. ``set_up`` is what points the client at the proxy: BASE stands for the address of session and run with `/v1`,
    ROOT for the one without. ``headers`` is how session and run are given as headers instead. A row that
    is not ``quick`` is left out of the short form: other rows cover its package and its wire format.
    """

    name: str
    package: str
    wire: str
    agent: str
    set_up: str
    headers: str = "default_headers=HEADERS"
    arguments: tuple[str, ...] = ()
    environment: str = ""
    requirements: tuple[str, ...] = ()
    modes: tuple[str, ...] = (PLAIN, STREAM)
    notes: str = ""
    quick: bool = True

    @property
    def light(self) -> bool:
        """Whether it is installed with the project's own development packages."""
        return not self.environment

    def base(self, root: str) -> str:
        """The base URL that the client wants for a proxy's ``root``: with `/v1` for the OpenAI formats."""
        return root + "/v1" if self.wire in (CHAT, RESPONSES) else root


_OPENAI = "OpenAI(base_url=BASE)"

CLIENTS = (
    Client("openai", "openai", CHAT, "openai.py", _OPENAI),
    Client("openai (responses)", "openai", RESPONSES, "openai_responses.py", _OPENAI),
    Client("anthropic", "anthropic", MESSAGES, "anthropic.py", "Anthropic(base_url=ROOT)"),
    Client(
        "openai-agents",
        "openai-agents",
        RESPONSES,
        "openai_agents.py",
        "set_default_openai_client(AsyncOpenAI(base_url=BASE))",
    ),
    Client(
        "langchain-openai",
        "langchain-openai",
        CHAT,
        "langchain_openai.py",
        "ChatOpenAI(base_url=BASE)",
    ),
    Client(
        "pydantic-ai",
        "pydantic-ai-slim",
        RESPONSES,
        "pydantic_ai.py",
        "OpenAIProvider(openai_client=AsyncOpenAI(base_url=BASE))",
        arguments=("openai",),
    ),
    Client(
        "pydantic-ai (anthropic)",
        "pydantic-ai-slim",
        MESSAGES,
        "pydantic_ai.py",
        "AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=ROOT))",
        arguments=("anthropic",),
        modes=(STREAM,),
        notes="streams on the wire, whatever is asked of it",
        quick=False,  # the slowest of all to start
    ),
    Client(
        "openai 1.x",
        "openai",
        CHAT,
        "openai.py",
        _OPENAI,
        environment="openai-1",
        requirements=("openai==1.109.1",),
    ),
    Client(
        "langgraph",
        "langgraph",
        CHAT,
        "langgraph.py",
        "ChatOpenAI(base_url=BASE)",
        environment="langgraph",
        requirements=("langchain==1.5.2", "langchain-openai==1.7.4", "langgraph==1.2.24"),
    ),
    Client(
        "google-genai",
        "google-genai",
        GEMINI,
        "google_genai.py",
        "genai.Client(http_options=HttpOptions(base_url=ROOT))",
        "HttpOptions(headers=HEADERS)",
        environment="google-genai",
        requirements=("google-genai==3.6.1",),
    ),
    Client(
        "smolagents",
        "smolagents",
        CHAT,
        "smolagents.py",
        "OpenAIModel(api_base=BASE)",
        'client_kwargs={"default_headers": HEADERS}',
        environment="smolagents",
        requirements=("smolagents[openai]==1.26.0",),
        notes="sends its history back as plain text",
    ),
    Client(
        "autogen-agentchat",
        "autogen-agentchat",
        CHAT,
        "autogen.py",
        "OpenAIChatCompletionClient(base_url=BASE)",
        environment="autogen",
        requirements=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
    ),
    Client(
        "llama-index",
        "llama-index-core",
        CHAT,
        "llama_index.py",
        "OpenAI(api_base=BASE)",
        environment="llama-index",
        requirements=("llama-index-core==0.14.25", "llama-index-llms-openai"),
        notes="of the variables reads OPENAI_API_BASE only",
    ),
    Client(
        "strands-agents",
        "strands-agents",
        CHAT,
        "strands.py",
        'OpenAIModel(client_args={"base_url": BASE})',
        'client_args={"default_headers": HEADERS}',
        environment="strands",
        requirements=("strands-agents[openai]==1.62.0",),
        modes=(STREAM,),
        notes="always streams",
    ),
    Client(
        "agno",
        "agno",
        CHAT,
        "agno.py",
        "OpenAIChat(base_url=BASE)",
        environment="agno",
        requirements=("agno==3.1.10", "openai"),
    ),
    Client(
        "litellm",
        "litellm",
        CHAT,
        "litellm.py",
        "litellm.completion(api_base=BASE)",
        "extra_headers=HEADERS",
        environment="litellm",
        requirements=("litellm==1.110.2",),
    ),
    Client(
        "crewai",
        "crewai",
        CHAT,
        "crewai.py",
        "LLM(base_url=BASE)",
        environment="crewai",
        requirements=("crewai==1.15.30",),
    ),
)
