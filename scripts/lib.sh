# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts and the Makefile: finding Go where sudo's short PATH does not.
root=${root:-$PWD}

# find_go sets GO to a go command that is new enough for go.mod, or ends the script with what to do.
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
			GO=$candidate
			export PATH=${candidate%/*}:$PATH
			return
		fi
	done
	if [[ -n $have ]]; then
		echo "Go $want or newer is needed, $candidate is $have: see https://go.dev/dl" >&2
	else
		echo "Go $want or newer is needed and none was found: see https://go.dev/dl" >&2
	fi
	exit 1
}

# give_back makes what was built under sudo the caller's own.
give_back() {
	if [[ -n ${SUDO_UID:-} && $EUID == 0 && -d $root/bin ]]; then
		chown -R "$SUDO_UID:$SUDO_GID" "$root/bin"
	fi
}
