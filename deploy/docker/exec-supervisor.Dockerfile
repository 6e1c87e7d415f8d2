# The trusted half of a run in a container: Python and our supervisor, which needs only the standard library there.
# From the root of the repository: docker build -f deploy/docker/exec-supervisor.Dockerfile .
# PYTHON_BUILD_IMAGE has the Python of PYTHON_IMAGE.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG PYTHON_BUILD_IMAGE=python:3.12-slim-bookworm

# The base that the images of a run's containers share, without pip and without setuid and setgid bits.
FROM ${PYTHON_IMAGE} AS ground
RUN library=$(python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$library/ensurepip" "$library"/site-packages/* /usr/local/bin/pip* /usr/share/python-wheels \
 && python3 -I -m compileall -q -j 0 -x '/(test|idlelib|turtledemo|dist-packages)/' "$library" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && echo 'executor:x:1001:1001::/workspace/work:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'supervisor:x:1002:1002::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'executor:x:1001:supervisor' >> /etc/group \
 && echo 'supervisor:x:1002:' >> /etc/group \
 && install -d -o 1002 -g 1001 -m 0750 /run/everturn

# Only the modules that the supervisor imports.
FROM ${PYTHON_BUILD_IMAGE} AS code
WORKDIR /build/packages
COPY libs/common/src/everturn/__init__.py everturn/
COPY libs/common/src/everturn/execution/__init__.py libs/common/src/everturn/execution/broker_messages.py \
     libs/common/src/everturn/execution/framing.py libs/common/src/everturn/execution/messages.py \
     libs/common/src/everturn/execution/privileges.py libs/common/src/everturn/execution/records.py \
     libs/common/src/everturn/execution/streams.py everturn/execution/
COPY services/exec-supervisor/src/exec_supervisor/__init__.py services/exec-supervisor/src/exec_supervisor/__main__.py \
     services/exec-supervisor/src/exec_supervisor/bootstrap.py services/exec-supervisor/src/exec_supervisor/pair.py \
     services/exec-supervisor/src/exec_supervisor/system_calls.py exec_supervisor/
COPY services/exec-supervisor/src/exec_supervisor/supervisor exec_supervisor/supervisor/
RUN python3 -I -m venv --without-pip /opt/everturn \
 && packages=$(python3 -I -c 'import sys; print("/opt/everturn/lib/python%d.%d/site-packages" % sys.version_info[:2])') \
 && mkdir -p "$packages" && cp -r . "$packages" && chmod -R a+rX /opt/everturn \
 && python3 -I -m compileall -q --invalidation-mode unchecked-hash "$packages"

FROM ground
COPY --from=code /opt/everturn /opt/everturn
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn supervisor" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8
USER 1002
WORKDIR /run/everturn
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-m", "exec_supervisor", "pair"]
