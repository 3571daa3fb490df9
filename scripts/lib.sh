# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions of the scripts and the Makefile.
root=${root:-$PWD}

# find_go sets GO to a go command that is new enough for go.mod, also where sudo's PATH has none, or exits.
find_go() {
	local home candidate want have
	home=$(getent passwd "${SUDO_USER:-$(id -un)}" | cut -d: -f6)
	want=$(awk '$1 == "go" { print $2 }' "$root/go.mod")
	have=
	for candidate in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-*/bin/go "$home"/go/bin/go \
		"$home"/sdk/go*/bin/go "$home"/.local/go/bin/go /snap/bin/go; do
		[[ -x $candidate ]] || continue
		have=$(GOTOOLCHAIN=local "$candidate" env GOVERSION 2>/dev/null) || continue
		have=${have#go}
		if [[ $(printf '%s\n' "$want" "$have" | sort -V | head -n 1) == "$want" ]]; then
			# shellcheck disable=SC2034 # the sourcing scripts use it
			GO=$candidate
			export PATH=${candidate%/*}:$PATH
			return
		fi
	done
	if [[ -n $have ]]; then
		echo "viplab needs Go $want or newer, but found only $have: see https://go.dev/dl" >&2
	else
		echo "viplab needs Go $want or newer, but found none: see https://go.dev/dl" >&2
	fi
	exit 1
}

# give_back gives what sudo built in bin/ to the user who called sudo.
give_back() {
	if [[ -n ${SUDO_UID:-} && $EUID == 0 && -d $root/bin ]]; then
		chown -R "$SUDO_UID:${SUDO_GID:?}" "$root/bin"
	fi
}
