# A worker, which runs turns. `make images` gathers what is copied here; nothing is downloaded. BASE has glibc and a
# Python of version PYTHON.
ARG BASE=python:3.12-slim-bookworm

# What the images of the services stand on, and share: installers and rights of other users are not there.
FROM ${BASE} AS ground
RUN library=$(python3 -I -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && rm -rf "$library/ensurepip" "$library"/site-packages/* /usr/local/bin/pip* /usr/share/python-wheels \
 && python3 -I -m compileall -q -j 0 -x '/(test|idlelib|turtledemo|dist-packages)/' "$library" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && echo 'everturn:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'broker:x:10002:10002::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'everturn:x:10001:broker' >> /etc/group \
 && echo 'broker:x:10002:' >> /etc/group \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/everturn/objects \
 && install -d -o 10002 -g 10001 -m 0750 /run/everturn

FROM ground AS libraries
ARG PYTHON=3.12
RUN python3 -I -m venv --without-pip /opt/everturn
COPY libraries/ /opt/everturn/lib/python${PYTHON}/site-packages/
RUN python3 -I -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/tests?/' /opt/everturn/lib

# Apart from the libraries, so that a change of ours makes a small layer.
FROM ground AS code
ARG PYTHON=3.12
COPY python/ /opt/everturn/lib/python${PYTHON}/site-packages/
RUN python3 -I -m compileall -q --invalidation-mode unchecked-hash /opt/everturn/lib

FROM ground
COPY --from=libraries /opt/everturn /opt/everturn
COPY --from=code /opt/everturn /opt/everturn
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Everturn worker" org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/everturn/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /opt/everturn
ENTRYPOINT ["/opt/everturn/bin/python", "-I", "-m", "chat_proc"]
