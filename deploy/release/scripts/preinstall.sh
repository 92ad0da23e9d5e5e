#!/bin/sh
# The services are members of this group, which reads /etc/sluice.
set -e
getent group sluice >/dev/null || groupadd --system sluice
