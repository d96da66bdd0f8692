#!/bin/sh
# Before files go. dpkg says "remove", and "upgrade" or "deconfigure" where we stay; rpm "0", and "1".
set -e
case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
  links=$(systemctl list-units --plain --no-legend 'warren-link@*.service' | cut -d' ' -f1)
  for unit in warren warren-relay warren-server $links; do
    systemctl --no-reload disable --now "$unit" 2>/dev/null || true
  done
fi
# A daemon that was killed leaves rules and the resolver's settings to the next start; there is none.
if [ -d /var/lib/warren-node ]; then
  /usr/bin/warren cleanup >/dev/null || true
fi
