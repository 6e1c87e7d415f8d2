# The broker, the only service with access to the container engine. From the root of the repository:
# docker build -f deploy/docker/broker.Dockerfile .
# PYTHON_BUILD_IMAGE has the Python of PYTHON_IMAGE, and pip. It installs packages; only files are copied from it,
# so a mirror or a certificate that you configure there stays out of the image.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG PYTHON_BUILD_IMAGE=python:3.12-slim-bookworm

# The base that the service images share, without pip and without setuid and setgid bits.
FROM ${PYTHON_IMAGE} AS ground
RUN library=$(python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$library/ensurepip" "$library"/site-packages/* /usr/local/bin/pip* /usr/share/python-wheels \
 && python3 -I -m compileall -q -j 0 -x '/(test|idlelib|turtledemo|dist-packages)/' "$library" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && echo 'everturn:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'broker:x:10002:10002::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'everturn:x:10001:broker' >> /etc/group \
 && echo 'broker:x:10002:' >> /etc/group \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/everturn/objects \
 && install -d -o 10001 -g 10001 -m 0755 /var/lib/everturn/environments \
 && install -d -o 10002 -g 10001 -m 0750 /run/everturn

FROM ${PYTHON_BUILD_IMAGE} AS libraries
WORKDIR /build
COPY deploy/docker/select_libraries.py requirements.lock ./
COPY libs/common/pyproject.toml libs/common/
COPY services/exec-supervisor/pyproject.toml services/exec-supervisor/
RUN python3 -I -m venv --without-pip /opt/everturn \
 && python3 -I select_libraries.py services/exec-supervisor > libraries.lock \
 && pip --python /opt/everturn/bin/python install --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes -r libraries.lock \
 && find /opt/everturn/bin -type f -delete \
 && /opt/everturn/bin/python -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/tests?/' /opt/everturn/lib

# In a separate stage from the libraries, so that a change to Everturn's code creates only a small layer. Only the modules that the broker imports.
FROM ${PYTHON_BUILD_IMAGE} AS code
WORKDIR /build/packages
COPY libs/common/src/everturn/__init__.py everturn/
COPY libs/common/src/everturn/core/__init__.py libs/common/src/everturn/core/api_model.py \
     libs/common/src/everturn/core/cancellation.py libs/common/src/everturn/core/errors.py \
     libs/common/src/everturn/core/logging.py libs/common/src/everturn/core/loops.py libs/common/src/everturn/core/metrics.py \
     libs/common/src/everturn/core/page_server.py libs/common/src/everturn/core/settings.py \
     libs/common/src/everturn/core/transports.py everturn/core/
COPY libs/common/src/everturn/execution/__init__.py libs/common/src/everturn/execution/broker_messages.py \
     libs/common/src/everturn/execution/destinations.py \
     libs/common/src/everturn/execution/framing.py libs/common/src/everturn/execution/messages.py \
     libs/common/src/everturn/execution/privileges.py libs/common/src/everturn/execution/profiles.py \
     libs/common/src/everturn/execution/records.py libs/common/src/everturn/execution/streams.py everturn/execution/
COPY services/exec-supervisor/src/exec_supervisor/__init__.py services/exec-supervisor/src/exec_supervisor/__main__.py \
     services/exec-supervisor/src/exec_supervisor/bootstrap.py \
     services/exec-supervisor/src/exec_supervisor/system_calls.py exec_supervisor/
COPY services/exec-supervisor/src/exec_supervisor/broker exec_supervisor/broker/
COPY services/exec-supervisor/src/exec_supervisor/supervisor exec_supervisor/supervisor/
RUN packages=$(python3 -I -c 'import sys; print("/opt/everturn/lib/python%d.%d/site-packages" % sys.version_info[:2])') \
 && mkdir -p "$packages" && cp -r . "$packages" && chmod -R a+rX /opt/everturn \
 && python3 -I -m compileall -q --invalidation-mode unchecked-hash "$packages"

FROM ground
COPY --from=libraries /opt/everturn /opt/everturn
COPY --from=code /opt/everturn /opt/everturn
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn broker" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
WORKDIR /opt/everturn
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-m", "exec_supervisor", "broker"]
