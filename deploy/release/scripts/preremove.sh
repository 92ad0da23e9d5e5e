#!/bin/sh
# Debian says remove, RPM how many versions stay.
set -e
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
  systemctl disable --now sluice-sidecar sluice-controlplane
fi
