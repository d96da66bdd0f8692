#!/bin/sh
# Puts a real OpenStack below FOLDER/root: keystone, neutron with its agents, nova, placement and glance
# of Debian 12, with a database and a broker. This machine gets nothing but that folder.
#
#     install.sh FOLDER
#
# Its databases are made here, once; what runs later works on a copy in memory (cloud.py).
set -eu
folder=$1
here=$(dirname "$(realpath "$0")")
root=$folder/root

# The first half may be gone on with; the folder is whole when `installed` is there.
if ! test -e "$root/etc/debian_version"; then
  rm -rf "$root"
  mkdir -p "$root"
  printf 'openstack: a root of Debian 12\n'
  debootstrap --variant=minbase bookworm "$root" >"$folder/debootstrap.log" \
    || { tail "$folder/debootstrap.log" >&2; rm -rf "$root"; exit 1; }
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost cloud0\n' >"$root/etc/hosts"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
sources=$root/etc/apt/sources.list
mirror=$(sed -n 's/^deb \([^ ]*\) bookworm main.*/\1/p' "$sources" | head -n 1)
printf 'deb %s bookworm main\ndeb %s bookworm-updates main\n' "$mirror" "$mirror" >"$sources"
printf 'deb %s-security bookworm-security main\n' "$mirror" >>"$sources"

# What drops packets and answers is the kernel and these agents; nova's machines are not real.
printf 'openstack: some 400 packages, 190 MB, for a few minutes\n'
sh "$here/root.sh" keep "$folder" sh -ec '
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends \
    keystone placement-api glance-api nova-api nova-conductor nova-scheduler nova-compute \
    neutron-server neutron-linuxbridge-agent neutron-l3-agent neutron-dhcp-agent \
    mariadb-server rabbitmq-server uwsgi-plugin-python3 python3-pymysql \
    iproute2 iptables ebtables ipset conntrack iputils-arping dnsmasq-base procps
  apt-get clean
' >"$folder/apt.log" 2>&1 || { tail "$folder/apt.log" >&2; exit 1; }

printf 'openstack: databases\n'
unshare --net sh "$here/root.sh" keep "$folder" python3 /srv/cloud.py prepare
touch "$folder/installed"
