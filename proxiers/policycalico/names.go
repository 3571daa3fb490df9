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

// devices is how the names of pods' devices begin, and chains how those of our chains do.
const (
	devices = "cali"
	chains  = "cali-"
)

// side is what names and rules for a direction have of their own.
type side struct {
	device, policy, profile string // prefixes of chains
	peer                    string // where a set's addresses are looked for
	log                     string // how the log calls it
	group                   string
}

var sides = map[policy.Direction]side{
	policy.Ingress: {"cali-tw-", "cali-pi-", "cali-pri-", "src", "DPI|", "1"},
	policy.Egress:  {"cali-fw-", "cali-po-", "cali-pro-", "dst", "DPE|", "2"},
}

// maxChain is the longest name of a chain that iptables takes.
const maxChain = 28

// policyChain has a hash for a name: no two policies share one, however alike they are called.
func policyChain(p *policy.Policy) string {
	return sides[p.Direction].policy + hash(20, p.Namespace, p.Name)
}

// readable is prefix and name where that is not too long for a chain, and has a hash in the name's place otherwise.
func readable(prefix, name string) string {
	if plain := policy.Plain(name); plain == name && len(prefix+name) <= maxChain {
		return prefix + name
	}
	return prefix + "_" + hash(maxChain-len(prefix)-1, name)
}

// hash is so many letters for some texts.
func hash(letters int, texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:letters]
}

// setPrefix is how the names of our sets of a family begin. Those of both families share one space.
func setPrefix(f lab.Family) string {
	if f == lab.V6 {
		return "cali60s:"
	}
	return "cali40s:"
}

// set is a set and all that is in it, of which the name is made.
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
