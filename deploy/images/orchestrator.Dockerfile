# The orchestrator: Dagster, the pipelines, every adapter; no torch, for nothing here trains.
# From the top of the repository:
#   docker build -f deploy/images/orchestrator.Dockerfile -t ml-assets/orchestrator:dev .
#
# BASE has a tag, so that a laptop can build. The workflow of CI resolves it once, and hands the same
# repository@sha256:... to both images.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv && /opt/venv/bin/pip install 'pip>=25.1,<26'
WORKDIR /opt/ml-assets
COPY pyproject.toml requirements.lock ./
RUN /opt/venv/bin/pip install -c requirements.lock --group orchestrator
COPY README.md LICENSE ./
COPY ml_assets ml_assets
RUN /opt/venv/bin/pip install --no-deps -e . && /opt/venv/bin/python -m compileall -q ml_assets \
    && /opt/venv/bin/pip uninstall -y -q pip
# Whoever starts Dagster's web server by its own name, as its Helm chart does, starts the guarded one.
RUN printf '#!/bin/sh\nexec /opt/venv/bin/python -m ml_assets.adapters.webserver "$@"\n' \
    > /opt/venv/bin/dagster-webserver

FROM ${BASE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ml-assets orchestrator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp DAGSTER_HOME=/opt/dagster/home ML_ASSETS_HOME=/var/lib/ml-assets
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/ml-assets /opt/ml-assets
# made and owned here, for a volume of Docker's takes over who owns its folder; Kubernetes mounts over
RUN mkdir -p /opt/dagster/home /var/lib/ml-assets \
    && chown 10001:10001 /opt/dagster/home /var/lib/ml-assets
WORKDIR /opt/ml-assets
USER 10001:10001
# No entry point: Dagster starts runs by their arguments.
