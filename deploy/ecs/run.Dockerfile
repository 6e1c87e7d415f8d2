# The container of a run in a task of ECS: the executor's image, the part of the AWS SDK that reads a secret, and the mode
# "task" of the supervisor. From the root of the repository: docker build -f deploy/ecs/run.Dockerfile .
# EXECUTOR_IMAGE is built with deploy/docker/executor.Dockerfile; PYTHON_BUILD_IMAGE has its Python, and pip.
ARG EXECUTOR_IMAGE=everturn/executor:latest
ARG PYTHON_BUILD_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_BUILD_IMAGE} AS libraries
WORKDIR /build
COPY deploy/docker/select_libraries.py requirements.lock ./
RUN python3 -m venv --without-pip /opt/everturn \
 && python3 -c 'import select_libraries as s; print(s.build_runtime_lock(s.LOCK.read_text(), ["botocore"]))' > libraries.lock \
 && pip --python /opt/everturn/bin/python install --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes -r libraries.lock \
 && rm -r /opt/everturn/bin \
 && cd /opt/everturn/lib/python*/site-packages \
 && find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name secretsmanager -exec rm -r {} + \
 && python3 -I -m compileall -q -j 0 --invalidation-mode unchecked-hash .
COPY libs/common/src/everturn/execution/task_orders.py packages/everturn/execution/
COPY services/exec-supervisor/src/exec_supervisor/task packages/exec_supervisor/task/
RUN cp -r packages/. /opt/everturn/lib/python*/site-packages && chmod -R a+rX /opt/everturn

FROM ${EXECUTOR_IMAGE}
COPY --from=libraries /opt/everturn /opt/everturn
# The task definition makes the root read-only and mounts a volume at each of these, with its owner.
VOLUME ["/workspace/work", "/workspace/out", "/run/everturn"]
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-B", "-X", "utf8", "-m", "exec_supervisor"]
