#!/bin/sh
# Runs a command in the root of another system, in namespaces of its own. When the command ends, every
# process that it started is gone, and so is every mount.
#
#     root.sh keep FOLDER COMMAND...      what changes below FOLDER/root stays
#     root.sh forget FOLDER COMMAND...    it changes in memory
#
# The command finds this folder at /srv, and FOLDER/logs at /var/log/cloud. It is in the network of
# whoever runs this, and sees the devices of that one in /sys.
set -eu
if [ "${WARREN_ROOT:-}" != inside ]; then
  export WARREN_ROOT=inside
  exec unshare --mount --pid --uts --ipc --fork --kill-child --propagation private sh "$0" "$@"
fi
unset WARREN_ROOT TMPDIR XDG_CONFIG_HOME
# Whoever measures may have bounded what a program writes; a database writes more.
ulimit -f unlimited
word=$1
folder=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
shift 2

mount -t tmpfs cloud /mnt
cd /mnt
mkdir root upper work
case $word in
  keep) mount --bind "$folder/root" root ;;
  forget) mount -t overlay cloud -o "lowerdir=$folder/root,upperdir=upper,workdir=work" root ;;
esac
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 run run
mkdir -p run/lock run/netns
# Network namespaces that agents make are seen by all of them.
mount --bind run/netns run/netns
mount --make-shared run/netns
# Devices of its own: packages change the modes of those that they find.
mount -t tmpfs -o mode=755 dev dev
mkdir -p dev/net dev/pts dev/shm
while read -r name major minor; do
  mknod -m 666 "dev/$name" c "$major" "$minor"
done <<'NODES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
net/tun 10 200
NODES
mount -t devpts -o newinstance,ptmxmode=666 pts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 shm dev/shm
mkdir -p srv var/log/cloud "$folder/logs"
mount --bind "$here" srv
mount -o remount,bind,ro srv
mount --bind "$folder/logs" var/log/cloud
hostname cloud0
# Below a root that is no mount `ip netns exec` fails, and the agent of routers with it.
pivot_root . mnt
umount -l /mnt
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
export PYTHONDONTWRITEBYTECODE=1
exec "$@"
