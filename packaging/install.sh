#!/bin/sh
# Installs Warren from the folder that this file lies in, or takes it away again.
#
#   ./install.sh              puts the program, units, pages and completions below /usr/local
#   ./install.sh --remove     stops it and takes all of that away; state in /var/lib/warren* stays
#
# It fetches nothing, starts nothing, and writes only what the list below names. Where there is
# dpkg or rpm take the package instead, which does the same and knows how to undo it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
to=${PREFIX:-/usr/local}
units='warren warren-server warren-relay'

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail 'this writes below /usr/local and /etc: run it as root'

with_systemd() {
  if [ -d /run/systemd/system ]; then systemctl "$@"; fi
}

remove() {
  links=$(with_systemd list-units --plain --no-legend 'warren-link@*.service' | cut -d' ' -f1)
  for unit in $units $links; do
    with_systemd --no-reload disable --now "$unit" 2>/dev/null || true
  done
  if [ -x "$to/bin/warren" ]; then "$to/bin/warren" cleanup >/dev/null || true; fi
  (cd "$here/usr" && find . -type f -o -type l) | while read -r file; do
    rm -f "$to/${file#./}"
  done
  rm -rf "$to/share/doc/warren"
  with_systemd daemon-reload
  echo 'removed; state is in /var/lib/warren*, settings in /etc/default/warren*'
}

install_all() {
  "$here/usr/bin/warren" --version >/dev/null || fail 'this machine cannot run this program'
  (cd "$here/usr" && find . -type d) | while read -r folder; do
    mkdir -p "$to/${folder#./}"
  done
  # A program that runs cannot be written over, but one can take its name.
  (cd "$here/usr" && find . -type f -o -type l) | while read -r file; do
    cp -P "$here/usr/$file" "$to/${file#./}.warren-new"
    mv -f "$to/${file#./}.warren-new" "$to/${file#./}"
  done
  sed -i "s|/usr/bin/warren|$to/bin/warren|" "$to"/lib/systemd/system/warren*.service
  for unit in $units; do
    if [ ! -e "/etc/default/$unit" ]; then
      mkdir -p /etc/default
      cp "$here/etc/default/$unit" "/etc/default/$unit"
      # Tokens may stand there.
      chmod 600 "/etc/default/$unit"
    fi
  done
  with_systemd daemon-reload
  with_systemd try-restart warren-server.service warren-relay.service warren.service 'warren-link@*.service' || true
  "$to/bin/warren" --version
  echo 'next, on a node:   systemctl enable --now warren && warren up TOKEN'
  echo 'or, on a server:   set WARREN_URL in /etc/default/warren-server,'
  echo '                   systemctl enable --now warren-server && warren key create'
}

case "${1:-}" in
  '') install_all ;;
  --remove) remove ;;
  *) fail "it takes no word but --remove, and was given $1" ;;
esac
