#!/bin/bash
# Called by `make packages`: out of the program in $PACKAGES/$ARCH it makes what people install. Every
# time the same bytes from the same commit.
set -euo pipefail

out=$(realpath "$PACKAGES/$ARCH")
stage=$out/stage
case $ARCH in
  x86_64) debian=amd64 image=amd64 ;;
  aarch64) debian=arm64 image=arm64 ;;
  *) echo "packages: $ARCH is not known" >&2; exit 1 ;;
esac
# The time of all files: that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export SOURCE_DATE_EPOCH

# A program for another processor cannot print its own pages.
shown=${SHOWN:-$PACKAGES/$(uname -m)}
rm -rf "$stage"
$MAKE --no-print-directory install DESTDIR="$stage" PREFIX=/usr INSTALLED=warren \
  PROGRAMS="$out" WARREN="$out/warren" SHOWN="$shown"
gzip -9n "$stage"/usr/share/man/man1/*.1 "$stage"/usr/share/man/man8/*.8
chmod -R u=rwX,go=rX "$stage"
install -d -m 755 "$stage/etc"
# Tokens may stand there.
install -D -m 600 -t "$stage/etc/default" packaging/default/*
chmod 755 "$stage/etc/default"
find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

# A tarball, which install.sh puts where it belongs.
name=warren-$VERSION-linux-$ARCH
install -m 755 -t "$stage" packaging/install.sh
touch --date="@$SOURCE_DATE_EPOCH" "$stage/install.sh" "$stage"
tar --create --xz --file "$out/$name.tar.xz" --directory "$stage" --sort=name --owner=0 --group=0 \
  --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --transform "s,^\.,$name," .

if [ -x "$NFPM" ]; then
  deb=$out/warren_${VERSION}_$debian.deb
  ARCH=$debian STAGE=$stage "$NFPM" package --config packaging/nfpm.yaml --packager deb --target "$deb"
  # Its files were not compressed: xz does that better than nfpm, by a fifth, and knows what jumps of
  # x86 look like.
  parts=$(mktemp -d)
  if [ "$debian" = amd64 ]; then how=(--x86 --lzma2=preset=6e,dict=32MiB); else how=(-6e); fi
  (cd "$parts" && ar x "$deb" && xz "${how[@]}" --threads=1 data.tar)
  rm "$deb"
  (cd "$parts" && ar rcDS "$deb" debian-binary control.tar.gz data.tar.xz)
  rm -r "$parts"
  ARCH=$debian STAGE=$stage "$NFPM" package --config packaging/nfpm.yaml --packager rpm \
    --target "$out/warren-$VERSION-1.$ARCH.rpm"
else
  printf '\n*** NO .deb AND NO .rpm: nfpm is not here, and Go, which builds it, neither ***\n\n' >&2
fi
python3 packaging/image.py "$out/warren" "$image" "$VERSION" "$out/warren-$VERSION-oci-$image.tar"

(cd "$out" && sha256sum -- *.tar.xz *.deb *.rpm *.tar 2>/dev/null > SHA256SUMS || true)
ls -l "$out" | awk '$5 > 100000 { printf "%8.2f MB  %s\n", $5 / 1e6, $9 }'
