# The training program: torch and what it reads and writes; no dagster, no mlflow, no polars.
# From the top of the repository:
#   docker build -f deploy/images/training.Dockerfile -t ml-assets/training:dev .
#
# pip takes the default build of torch for Linux, which brings CUDA with it: the nodes need a driver,
# the image nothing of NVIDIA's. For another build: --build-arg TORCH_INDEX=https://...
#
# BASE has a tag, so that a laptop can build. The workflow of CI resolves it once, and hands the same
# repository@sha256:... to both images.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG TORCH_INDEX=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv && /opt/venv/bin/pip install 'pip>=25.1,<26'
WORKDIR /opt/ml-assets
COPY pyproject.toml requirements.lock ./
RUN /opt/venv/bin/pip install -c requirements.lock ${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}} \
    --group training
COPY README.md LICENSE ./
COPY ml_assets ml_assets
# every pod says which program it has: its modules are parsed here, not at each start
RUN /opt/venv/bin/pip install --no-deps -e . && /opt/venv/bin/python -m compileall -q ml_assets \
    && /opt/venv/bin/python -c "from ml_assets.spec.training_program.identity import program_here as p; p('network'), p('trees')" \
    && /opt/venv/bin/pip uninstall -y -q pip

FROM ${BASE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ml-assets training" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    HOME=/tmp NVIDIA_DRIVER_CAPABILITIES=compute,utility
# LightGBM's OpenMP runtime, and what torch.compile takes at run time, on a GPU too
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 g++ \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/ml-assets /opt/ml-assets
WORKDIR /opt/ml-assets
USER 10001:10001
# No entry point: the launcher names the command.
