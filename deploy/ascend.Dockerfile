# The published Ascend image of SGLang, with the controller in an environment of its own beside it.
# Nothing of the image's SGLang, torch_npu and CANN is changed: the controller reaches them through their interpreter.

# 910b for an Atlas 800I A2, a3 for an A3. v0.5.19 is the first release whose allocator has the clamp.
ARG DEVICE=910b
ARG SGLANG=v0.5.19
ARG CANN=9.0.0

FROM quay.io/ascend/sglang:${SGLANG}-cann${CANN}-${DEVICE}
ARG SGLANG
ARG DEVICE
LABEL org.opencontainers.image.title="lastpage" \
      org.opencontainers.image.description="Memory-pressure stress testing for SGLang on Ascend ${DEVICE}" \
      org.opencontainers.image.licenses="Apache-2.0"
# hadolint ignore=DL3002
USER 0:0
WORKDIR /opt/lastpage-source
# Where pip gets the controller's packages; absent: pip's default.
ARG PIP_INDEX_URL
COPY pyproject.toml README.md LICENSE ./
COPY service ./service
COPY loadgen ./loadgen
# The device group of the driver has the id 1000; the image has a user with it already where it was made for that.
RUN python3 -m venv /opt/lastpage \
    && /opt/lastpage/bin/pip install --no-cache-dir . \
    && { getent group 1000 || groupadd --gid 1000 lastpage; } \
    && { getent passwd 1000 || useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/lastpage lastpage; } \
    && install --directory --owner=1000 --group=1000 /var/lib/lastpage
COPY --chmod=0755 deploy/entrypoint.sh deploy/nightly_soak.py deploy/forget_runs.sh /usr/local/lib/lastpage/
COPY --chmod=0755 deploy/lastpage.sh /usr/local/bin/lastpage
# No ENGINE_PYTHON: the engine is the image's own python3, found on PATH.
ENV LASTPAGE_HOME=/var/lib/lastpage \
    HOME=/var/lib/lastpage \
    ENGINE_NAME=ascend \
    PYTHONDONTWRITEBYTECODE=1
USER 1000:1000
WORKDIR /var/lib/lastpage
VOLUME /var/lib/lastpage
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s \
    CMD ["/opt/lastpage/bin/python", "-c", "from urllib.request import *; build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["/usr/local/lib/lastpage/entrypoint.sh"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
