#!/bin/sh
# After files went. State stays, for a package that comes back, until dpkg says "purge"; where there
# is no such word, as with rpm, the administrator removes /var/lib/warren* and
# /var/lib/private/warren*.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
  rm -rf /var/lib/warren-node /var/lib/private/warren /var/lib/private/warren-relay
  # Links that systemd made; a folder there is from before the unit had a user of its own.
  rm -rf /var/lib/warren /var/lib/warren-relay
  rmdir /var/lib/private /etc/warren 2>/dev/null || true
fi
