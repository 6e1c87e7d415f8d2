# The untrusted half of a run: Python, the libraries of generated code, and our runner, which needs only the standard
# library. In the layout "combined" the supervisor, which is in this image too, is the first process of its container.
# From the root of the repository: docker build -f deploy/docker/executor.Dockerfile .
# PYTHON_BUILD_IMAGE has the Python of PYTHON_IMAGE, and pip. It installs packages; only files are copied from it,
# so a mirror or a certificate that you configure there stays out of the image.
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

# The root of a run is read-only: caches that a first import would write are created here.
FROM ${PYTHON_BUILD_IMAGE} AS libraries
WORKDIR /build
COPY services/executor/requirements.lock libraries.lock
RUN python3 -I -m venv --without-pip /opt/everturn \
 && pip --python /opt/everturn/bin/python install --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes -r libraries.lock \
 && find /opt/everturn/bin -type f -delete \
 && rm -rf /opt/everturn/lib/python*/site-packages/pandas/tests \
 && /opt/everturn/bin/python -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/tests/' /opt/everturn/lib \
 && MPLCONFIGDIR=/opt/everturn/share/everturn/matplotlib /opt/everturn/bin/python -I -c 'import matplotlib.font_manager'

# In a separate stage from the libraries, so that a change to Everturn's code creates only a small layer. Only the modules that executor and supervisor import.
FROM ${PYTHON_BUILD_IMAGE} AS code
WORKDIR /build/packages
COPY libs/common/src/everturn/__init__.py everturn/
COPY libs/common/src/everturn/execution/__init__.py libs/common/src/everturn/execution/broker_messages.py \
     libs/common/src/everturn/execution/framing.py libs/common/src/everturn/execution/messages.py \
     libs/common/src/everturn/execution/privileges.py libs/common/src/everturn/execution/records.py \
     libs/common/src/everturn/execution/streams.py everturn/execution/
COPY services/executor/src/executor executor/
COPY services/exec-supervisor/src/exec_supervisor/__init__.py services/exec-supervisor/src/exec_supervisor/__main__.py \
     services/exec-supervisor/src/exec_supervisor/bootstrap.py services/exec-supervisor/src/exec_supervisor/combined.py \
     services/exec-supervisor/src/exec_supervisor/system_calls.py exec_supervisor/
COPY services/exec-supervisor/src/exec_supervisor/supervisor exec_supervisor/supervisor/
RUN packages=$(python3 -I -c 'import sys; print("/opt/everturn/lib/python%d.%d/site-packages" % sys.version_info[:2])') \
 && mkdir -p "$packages" && cp -r . "$packages" && chmod -R a+rX /opt/everturn \
 && python3 -I -m compileall -q --invalidation-mode unchecked-hash "$packages"

FROM ground
RUN install -d -o 1001 -g 1001 -m 0700 /workspace/work /workspace/out
COPY --from=libraries /opt/everturn /opt/everturn
COPY --from=code /opt/everturn /opt/everturn
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn executor" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8
USER 1001:1001
WORKDIR /workspace/work
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-B", "-X", "utf8", "-m", "executor", "--line", "/run/everturn/line.sock"]
