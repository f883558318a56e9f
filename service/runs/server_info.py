"""The server of a run, as reports hold it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from loadgen.sglang.server import ServerConfiguration


class ServerInfo(BaseModel):
    """How a server was launched, as its arguments were read: what the load was planned for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    page_size: int = Field(description="Tokens a page.")
    pool_pages: int = Field(description="Pages in the pool.")
    overlap: bool = Field(description="Whether it runs with overlap scheduling.")
    prefix_cache: bool = Field(description="Whether it keeps the pages of what has ended in a radix cache.")
    max_running_requests: int | None = Field(default=None, description="Most rows of a batch; null: SGLang's choice.")
    chunked_prefill_size: int | None = Field(
        default=None, description="Tokens of one prefill, below 1 for whole prompts; null: SGLang's choice."
    )
    incremental_streams: bool = Field(default=False, description="Whether a stream's events hold new tokens only.")

    @classmethod
    def of(cls, server: ServerConfiguration) -> ServerInfo:
        return cls(
            page_size=server.pool.page_size,
            pool_pages=server.pool.pages,
            overlap=server.overlap,
            prefix_cache=server.prefix_cache,
            max_running_requests=server.max_running_requests,
            chunked_prefill_size=server.chunked_prefill_size,
            incremental_streams=server.incremental_streams,
        )
