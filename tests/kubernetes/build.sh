#!/usr/bin/env bash
# build.sh OUT: a real Kubernetes 1.20.2 (kube-apiserver, kube-controller-manager, kube-scheduler, kubelet) in OUT.
#
# Debian packages no server of Kubernetes, but the source package `kubernetes` of Debian 12 is the whole upstream tree with
# its vendored modules. It builds with Debian's own Go 1.19: four to nine minutes of two cores. Needs root for apt-get; the
# machine's own lists of packages stay as they are. Where OUT is whole already, nothing is done.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh OUT}")
parts="kube-apiserver kube-controller-manager kube-scheduler kubelet"
whole() { for part in $parts; do [ -x "$out/$part" ] || return 1; done; }
if whole; then exit 0; fi
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-kubernetes-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "Kubernetes cannot be built here: $1" >&2; tail -5 "$work/log" >&2 || :; exit 1; }
quietly() { "$@" >>"$work/log" 2>&1; }

quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
  golang-1.19-go dpkg-dev rsync make gcc libc6-dev || fail "apt-get cannot install golang-1.19-go and what it takes to build with it"
# Debian's source packages, through lists of our own.
mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || :)
mkdir -p lists/partial cache/archives/partial
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} bookworm main" >sources.list
own="-o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache -o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root"
quietly apt-get -q $own update || fail "the list of Debian 12's source packages cannot be read"
quietly apt-get -q $own source kubernetes || fail "the source package kubernetes cannot be fetched"
# Two vendored modules of 2019 read a nil pointer under Go 1.18 and later: Debian's newer packages of them lie over them.
quietly apt-get download -q golang-github-modern-go-reflect2-dev golang-github-json-iterator-go-dev ||
  fail "the packages of two of its modules cannot be fetched"
for package in golang-github-*.deb; do dpkg -x "$package" newer; done
tree=$(echo "$work"/kubernetes-1.20*/)
for module in modern-go/reflect2 json-iterator/go; do
  rm -f "$tree/vendor/github.com/$module"/*.go "$tree/vendor/github.com/$module"/*.s
  find "newer/usr/share/gocode/src/github.com/$module" -maxdepth 1 \( -name '*.go' -o -name '*.s' \) ! -name '*_test.go' \
    -exec cp {} "$tree/vendor/github.com/$module/" \;
done
cd "$tree"
export PATH=/usr/lib/go-1.19/bin:$PATH CGO_ENABLED=0 GOFLAGS=-mod=vendor GOPATH=$PWD/.go HOME=$work/home
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive
mkdir -p .go/src/k8s.io "$HOME"
ln -sfn ../../.. .go/src/k8s.io/kubernetes
what=
for part in $parts; do what="$what cmd/$part"; done
quietly make WHAT="$what" || fail "make has failed"
mkdir -p "$out"
for part in $parts; do
  cp "_output/bin/$part" "$out/.$part" && mv "$out/.$part" "$out/$part"
done
whole || fail "make has left something out"
