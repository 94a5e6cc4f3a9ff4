# The orchestrator with your pipelines, in the place of the demo's. The context is the folder that holds
# a folder for each of them:
#   docker build --file deploy/images/pipelines.Dockerfile \
#       --build-arg BASE=registry.example.com/ml-assets/orchestrator@sha256:... \
#       --tag registry.example.com/my-team/orchestrator:1 pipelines
ARG BASE
FROM ${BASE}
USER 0:0
COPY . /opt/pipelines
RUN chmod -R a+rX /opt/pipelines
# the demo's is not named: it reads files of a laptop
ENV ML_ASSETS_PIPELINES=/opt/pipelines
USER 10001:10001
# one that is wrong would be shown as such and run nothing: it becomes no image
RUN ml-assets check
