#!/bin/sh
# What the services have stored stays in /var/lib/private.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
