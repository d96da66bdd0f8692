# Boots systemd on an overlay of this machine's own root, in the namespaces that the caller made.
# $1: the host's name; $2: its machine id. What is mounted is seen here alone.
set -eu
mount -t tmpfs machine /mnt
cd /mnt
mkdir upper work root
mount -t overlay machine -o lowerdir=/,upperdir=upper,workdir=work,redirect_dir=on root
cd root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs run run
mount -t tmpfs -o mode=755 dev dev
mkdir -p dev/net dev/pts dev/shm run/lock
for node in null zero full random urandom tty net/tun; do
  touch "dev/$node"
  mount --bind "/dev/$node" "dev/$node"
done
mount -t devpts -o newinstance,ptmxmode=666 pts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 shm dev/shm
# Sysfs that was mounted in this network namespace has a place for it.
mount -t cgroup2 cgroup sys/fs/cgroup
# What this machine does by the clock or to its kernel, keeps in /tmp or has of Warren is none of the
# guest's.
for unit in tmp.mount timers.target systemd-timesyncd.service systemd-udevd.service \
  systemd-sysctl.service systemd-modules-load.service; do
  ln -sf /dev/null "etc/systemd/system/$unit"
done
ln -sf /dev/null etc/tmpfiles.d/tmp.conf
rm -rf var/lib/warren* var/lib/private/warren* etc/default/warren* etc/warren* usr/bin/warren* \
  usr/local/bin/warren* etc/systemd/system/warren* etc/resolv.conf usr/local/lib/systemd/system/warren*
mkdir -p srv/lab
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$1" > etc/hosts
printf 'nameserver 192.0.2.53\n' > etc/resolv.conf
printf '%s\n' "$1" > etc/hostname
printf '%s\n' "$2" > etc/machine-id
pivot_root . mnt
umount -l /mnt
exec env -i container=warren-lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --unit=basic.target
