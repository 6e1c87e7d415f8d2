# The trusted half of a run in a container: Python and our supervisor, which needs only the standard library there.
# `make images` gathers what is copied here; nothing is downloaded. BASE has a Python of version PYTHON.
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

FROM ground AS build
ARG PYTHON=3.12
RUN python3 -I -m venv --without-pip /opt/everturn
COPY python/ /opt/everturn/lib/python${PYTHON}/site-packages/
RUN python3 -I -m compileall -q --invalidation-mode unchecked-hash /opt/everturn/lib

FROM ground
COPY --from=build /opt/everturn /opt/everturn
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn supervisor" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8
USER 1002
WORKDIR /run/everturn
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-m", "exec_supervisor", "pair"]
