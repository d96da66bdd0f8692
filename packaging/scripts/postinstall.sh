#!/bin/sh
# After files are there. dpkg says "configure OLD-VERSION", rpm "1" at first and "2" at an upgrade.
# A first installation starts nothing. An upgrade restarts what runs.
set -e
case "$1" in
  configure | 1 | 2 | '') ;;
  *) exit 0 ;;
esac

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # One that was stopped stays so. A link between nodes is back within a second or two.
  systemctl try-restart warren-server.service warren-relay.service warren.service \
    'warren-link@*.service' || true
fi

if [ -e /usr/local/bin/warren ]; then
  echo 'warren: /usr/local/bin/warren comes first on PATH, and its units before those of this' >&2
  echo 'package; remove it with `make uninstall` in the sources that it was installed from' >&2
fi
