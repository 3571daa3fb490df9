// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/lab"
)

// The chains that exist once.
const (
	chainForward    = "cali-FORWARD"
	chainOutput     = "cali-OUTPUT"
	chainPrerouting = "cali-PREROUTING"
	chainFrom       = "cali-from-wl-dispatch"
	chainTo         = "cali-to-wl-dispatch"
	chainIPVS       = "cali-from-ipvs"
)

// The prefixes of the names of pods' devices and of the enforcer's chains.
const (
	devices = "cali"
	chains  = "cali-"
)

// side holds the parts of names and rules that depend on the direction.
type side struct {
	device, policy, profile string // prefixes of chains
	peer                    string // the address that sets match
	log, group              string // prefix and group of logged packets
}

var sides = map[policy.Direction]side{
	policy.Ingress: {"cali-tw-", "cali-pi-", "cali-pri-", "src", "DPI|", "1"},
	policy.Egress:  {"cali-fw-", "cali-po-", "cali-pro-", "dst", "DPE|", "2"},
}

// maxChain is the longest name of a chain that iptables takes.
const maxChain = 28

// policyChain returns the name of a policy's chain, with a hash of the policy's name.
func policyChain(p *policy.Policy) string {
	return sides[p.Direction].policy + hash(20, p.Namespace, p.Name)
}

// readable returns prefix and name, or prefix and a hash if that is too long for a chain.
func readable(prefix, name string) string {
	if plain := policy.Plain(name); plain == name && len(prefix+name) <= maxChain {
		return prefix + name
	}
	return prefix + "_" + hash(maxChain-len(prefix)-1, name)
}

// hash returns the first letters of a hash.
func hash(letters int, texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:letters]
}

// setPrefix returns the prefix of the names of a family's sets. Both families share one name space.
func setPrefix(f lab.Family) string { return "cali" + f.String()[1:] + "0s:" }

// set is a set with its entries. Its name is a hash of them.
type set struct {
	ipset.Set
	entries []ipset.Entry
}

func newSet(f lab.Family, t ipset.Type, entries []ipset.Entry) set {
	texts := []string{string(t)}
	for _, e := range entries {
		texts = append(texts, e.String())
	}
	slices.Sort(texts)
	return set{ipset.Set{Name: setPrefix(f) + hash(23, texts...), Type: t, Family: f}, entries}
}
