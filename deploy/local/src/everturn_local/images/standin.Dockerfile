# Stands in for PYTHON_BUILD_IMAGE and NODE_IMAGE of deploy/docker; standins.py gathers what is copied here.
ARG BASE
FROM ${BASE}
COPY wheels/ /opt/wheels/
COPY root/ /
RUN printf '#!/bin/sh\nPYTHONPATH=/opt/pip exec python3 -m pip "$@"\n' > /usr/local/bin/pip \
 && printf '#!/bin/sh\nexec node /opt/npm/bin/npm-cli.js "$@"\n' > /usr/local/bin/npm \
 && chmod 0755 /usr/local/bin/pip /usr/local/bin/npm /usr/local/bin/node
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/opt/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
ARG REGISTRY
ENV NPM_CONFIG_OFFLINE=true NPM_CONFIG_CACHE=/opt/npm-cache NPM_CONFIG_REGISTRY=${REGISTRY}
