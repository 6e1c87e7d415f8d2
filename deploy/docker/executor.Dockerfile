# The untrusted half of a run: Python, the libraries of generated code, and our runner, which needs only the standard
# library. `make images` gathers what is copied here; nothing is downloaded. BASE has glibc and a Python of version PYTHON.
ARG BASE=python:3.12-slim-bookworm

# What both images stand on, and share: byte code is there, installers and rights of other users are not.
FROM ${BASE} AS ground
RUN library=$(python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$library/ensurepip" "$library"/site-packages/* /usr/local/bin/pip* /usr/share/python-wheels \
 && python3 -I -m compileall -q -j 0 -x '/(test|idlelib|turtledemo|dist-packages)/' "$library" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && echo 'executor:x:1001:1001::/workspace/work:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'supervisor:x:1002:1002::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'executor:x:1001:supervisor' >> /etc/group \
 && echo 'supervisor:x:1002:' >> /etc/group \
 && install -d -o 1002 -g 1001 -m 0750 /run/everturn

# The root of a run is read-only: what would be made at the first import is made here.
FROM ground AS libraries
ARG PYTHON=3.12
RUN python3 -I -m venv --without-pip /opt/everturn
COPY libraries/ /opt/everturn/lib/python${PYTHON}/site-packages/
RUN python3 -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/tests/' /opt/everturn/lib \
 && MPLCONFIGDIR=/opt/everturn/share/everturn/matplotlib /opt/everturn/bin/python -I -c 'import matplotlib.font_manager'

# Apart from the libraries, so that a change of ours makes a small layer.
FROM ground AS code
ARG PYTHON=3.12
COPY python/ /opt/everturn/lib/python${PYTHON}/site-packages/
RUN python3 -I -m compileall -q --invalidation-mode unchecked-hash /opt/everturn/lib

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
