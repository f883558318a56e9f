# The controller and a released SGLang for a plain CPU, each in an environment of its own.

ARG PYTHON=3.11.13

FROM python:${PYTHON}-slim-bookworm AS engine
ARG SGLANG=0.5.23
# Where pip gets its packages; absent: pip's default.
ARG PIP_INDEX_URL
RUN python -m venv /opt/engine \
    && /opt/engine/bin/pip install --no-cache-dir "sglang==${SGLANG}"

FROM python:${PYTHON}-slim-bookworm AS controller
ARG PIP_INDEX_URL
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY service ./service
COPY loadgen ./loadgen
RUN python -m venv /opt/lastpage \
    && /opt/lastpage/bin/pip install --no-cache-dir .

FROM python:${PYTHON}-slim-bookworm
ARG SGLANG=0.5.23
LABEL org.opencontainers.image.title="lastpage" \
      org.opencontainers.image.description="Memory-pressure stress testing for SGLang: the rehearsal on a plain CPU" \
      org.opencontainers.image.licenses="Apache-2.0"
# SGLang loads libnuma, and compiles small C++ helpers where it first needs them.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 lastpage \
    && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/lastpage lastpage \
    && install --directory --owner=lastpage --group=lastpage /var/lib/lastpage
COPY --from=engine /opt/engine /opt/engine
COPY --from=controller /opt/lastpage /opt/lastpage
COPY --chmod=0755 deploy/entrypoint.sh deploy/nightly_soak.py deploy/forget_runs.sh /usr/local/lib/lastpage/
COPY --chmod=0755 deploy/lastpage.sh /usr/local/bin/lastpage
ENV LASTPAGE_HOME=/var/lib/lastpage \
    HOME=/var/lib/lastpage \
    ENGINE_NAME=${SGLANG} \
    ENGINE_PYTHON=/opt/engine/bin/python \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /var/lib/lastpage
VOLUME /var/lib/lastpage
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["/opt/lastpage/bin/python", "-c", "from urllib.request import *; build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["/usr/local/lib/lastpage/entrypoint.sh"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
