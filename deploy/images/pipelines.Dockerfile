# The orchestrator with your pipelines, in the place of the demo's. The context is the folder that holds
# a folder for each of them:
#   docker build --file deploy/images/pipelines.Dockerfile \
#       --build-arg BASE=registry.example.com/ml-assets/orchestrator@sha256:... \
#       --tag registry.example.com/my-team/orchestrator:1 pipelines
ARG BASE
FROM ${BASE}
USER 0:0
# the demo's reads files of a laptop: here its sensors would find none, again and again
RUN rm -r /opt/ml-assets/ml_assets/pipelines/flight_delays
COPY . /opt/pipelines
RUN chmod -R a+rX /opt/pipelines
ENV ML_ASSETS_PIPELINES=/opt/pipelines
USER 10001:10001
# one that is wrong keeps all of them from being loaded: it becomes no image
RUN ml-assets check
