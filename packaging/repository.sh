#!/bin/bash
# Called by `make apt-repository`: repository.sh KEY FOLDER OUT. Of the .deb files below FOLDER it makes
# an apt repository in OUT, signed with a key of this user's GnuPG. OUT is served as it is.
set -euo pipefail

key=$1
from=$2
out=$3

rm -rf "$out"
mkdir -p "$out/pool"
find "$from" -name '*.deb' -not -path "$out/*" -exec cp -t "$out/pool" {} +
cd "$out"
architectures=''
for architecture in amd64 arm64; do
  if ! compgen -G "pool/*_$architecture.deb" >/dev/null; then continue; fi
  index=dists/stable/main/binary-$architecture
  mkdir -p "$index"
  dpkg-scanpackages --multiversion --arch "$architecture" pool 2>/dev/null > "$index/Packages"
  gzip -9nk "$index/Packages"
  architectures+=" $architecture"
done
[ -n "$architectures" ] || { echo 'apt-repository: there is no .deb; run make packages' >&2; exit 1; }

# A client refuses what is older than what it has seen, and what is past its date.
{
  printf 'Origin: Warren\nLabel: Warren\nSuite: stable\nCodename: stable\nComponents: main\n'
  printf 'Architectures:%s\nDate: %s\nValid-Until: %s\n' "$architectures" \
    "$(LC_ALL=C date -Ru)" "$(LC_ALL=C date -Ru -d '+90 days')"
  printf 'SHA256:\n'
  (cd dists/stable && find main -type f | sort | while read -r file; do
    printf ' %s %s %s\n' "$(sha256sum "$file" | cut -d' ' -f1)" "$(stat -c %s "$file")" "$file"
  done)
} > dists/stable/Release
gpg --batch --yes --local-user "$key" --armor --detach-sign -o dists/stable/Release.gpg dists/stable/Release
gpg --batch --yes --local-user "$key" --clearsign -o dists/stable/InRelease dists/stable/Release
gpg --batch --yes --export "$key" > warren.gpg
cat > warren.sources << SOURCES
Types: deb
URIs: https://packages.example.com/warren
Suites: stable
Components: main
Signed-By: /usr/share/keyrings/warren.gpg
SOURCES
echo "apt-repository: $out; clients want warren.gpg in /usr/share/keyrings and warren.sources"
